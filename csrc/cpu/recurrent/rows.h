// What the recurrences share: vectors at the end of a row, and how units of work are handed out.
#pragma once

#include "common/parallel.h"
#include "common/vec.h"
#include "recurrent/recurrent.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// The first `left` lanes of a vector, or all of them where there are as many.
template <typename T>
CORE_INLINE vf load_some(const T* p, int64_t left) {
  return left >= kLanes ? load(p) : load_part(p, left);
}

template <typename T>
CORE_INLINE void store_some(T* p, vf value, int64_t left) {
  left >= kLanes ? store(p, value) : store_part(p, value, left);
}

// `size` elements as float32, up to the next whole vector: zeros behind them.
template <typename T>
CORE_INLINE void widen(const T* from, float* to, int64_t size) {
  for (int64_t i = 0; i < size; i += kLanes) store(to + i, load_some(from + i, size - i));
}

// Calls body(part, row) for all parts (of heads or channels) of all rows. A thread gets the same parts of all rows, as far
// as it can be: rows may differ in length, parts do not, so that threads get about the same. It takes one row after the
// other, whose parts lie next to each other in memory. `work`: operations on vectors for one token of a part.
template <typename Args, typename Body>
void for_parts(const Args& a, int64_t parts, int64_t work, const Body& body) {
  constexpr int64_t team_work = 4096;  // a team costs about as much as this many
  int64_t each = a.rows > 0 ? work * ceil_div(a.tokens, a.rows) : 1;
  auto run = [&](int64_t first, int64_t last, int64_t row) {
    if (a.query_starts[row] == a.query_starts[row + 1]) return;
    for (int64_t part = first; part < last; ++part) body(part, row);
  };
  parallel_for(parts * a.rows, a.threads, ceil_div(team_work, each > 0 ? each : 1), [&](int64_t begin, int64_t end) {
    int64_t first = begin / a.rows, last = end / a.rows;  // parts in which the share begins and ends
    for (int64_t row = 0; row < a.rows; ++row) {
      run(first + (row < begin % a.rows ? 1 : 0), last + (row < end % a.rows ? 1 : 0), row);
    }
  });
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
