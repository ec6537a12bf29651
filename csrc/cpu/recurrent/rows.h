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

// Asks for memory that is read in a while, and that the processor does not see coming: tokens lie too far apart.
template <typename T>
CORE_INLINE void ask(const T* from, int64_t count) {
  constexpr int64_t line = 64 / sizeof(T);
  for (int64_t i = 0; i < count; i += line) __builtin_prefetch(from + i, 0, 2);
}

// Some tokens of a row; `fresh`: its state before them counts as zeros.
struct Piece {
  int64_t row, from, to;
  bool fresh;
};

// Calls body(part, piece) for all parts (of heads or channels) of all rows, of which a piece has up to `most` tokens. A
// thread gets the same parts of all rows, as far as that is possible: rows may differ in length, parts do not, so that
// threads get about the same. It takes piece after piece, in the rows' order, and all of its parts of one: these lie next
// to each other in memory, tokens far apart, each on pages of its own. `work`: operations on vectors for one token of a
// part.
template <typename Args, typename Body>
void for_parts(const Args& a, int64_t parts, int64_t work, int64_t most, const Body& body) {
  constexpr int64_t team_work = 4096;  // a team costs about as much as this many
  int64_t each = a.rows > 0 ? work * ceil_div(a.tokens, a.rows) : 1;
  parallel_for(parts * a.rows, a.threads, ceil_div(team_work, each > 0 ? each : 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < a.rows; ++row) {
      // Units are in the order of the parts, `a.rows` for each.
      int64_t first = begin / a.rows + (row < begin % a.rows ? 1 : 0);
      int64_t last = end / a.rows + (row < end % a.rows ? 1 : 0), start = a.query_starts[row];
      for (int64_t from = start, stop = a.query_starts[row + 1]; from < stop; from += most) {
        Piece piece{row, from, stop - from < most ? stop : from + most, a.fresh[row] != 0 && from == start};
        for (int64_t part = first; part < last; ++part) body(part, piece);
      }
    }
  });
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
