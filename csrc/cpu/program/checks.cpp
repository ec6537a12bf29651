// Looks at the numbers of a step; see checks.h. Plain code: a step has as many as it has tokens and blocks.
#include "program/checks.h"

namespace {

// A negative number is a large one without its sign.
bool within(int64_t value, int64_t limit) { return static_cast<uint64_t>(value) < static_cast<uint64_t>(limit); }

bool all_within(const int64_t* values, int64_t count, int64_t limit) {
  bool sound = true;
  for (int64_t i = 0; i < count; ++i) sound &= within(values[i], limit);
  return sound;
}

bool blocks_within(const core_batch_args& a, int64_t row, int64_t length) {
  if (length > a.table_width * a.block_size) return false;
  const int32_t* blocks = a.table + row * a.table_stride;
  bool sound = true;
  for (int64_t i = 0; i < core::ceil_div(length, a.block_size); ++i) sound &= within(blocks[i], a.blocks);
  return sound;
}

}  // namespace

CORE_API int64_t core_cpu_range(const core_range_args* args) {
  return all_within(args->values, args->count, args->limit) ? 0 : 1;
}

CORE_API int64_t core_cpu_batch(const core_batch_args* args) {
  const core_batch_args& a = *args;
  if (a.query_starts[0] != 0 || a.query_starts[a.rows] != a.tokens) return 1;
  for (int64_t row = 0; row < a.rows; ++row) {
    int64_t queries = static_cast<int64_t>(a.query_starts[row + 1]) - a.query_starts[row];
    if (queries < 0 || (a.blocks > 0 && queries > a.seq_lens[row])) return 1;
    if (a.blocks > 0 && !blocks_within(a, row, a.seq_lens[row])) return 1;
  }
  return a.blocks == 0 || all_within(a.slots, a.tokens, a.blocks * a.block_size) ? 0 : 1;
}

CORE_API int64_t core_cpu_picked(const core_picked_args* args) {
  const core_picked_args& a = *args;
  bool sound = true;
  for (int64_t row = 0; row < a.rows; ++row) {
    int64_t behind = a.seq_lens[row] - a.query_starts[row + 1];  // from the number of a token to its position
    for (int64_t token = a.query_starts[row]; token < a.query_starts[row + 1]; ++token) {
      auto seen = static_cast<uint32_t>((token + behind + 1) / a.ratio + 1);  // with -1
      const int32_t* picked = a.picked + token * a.picks;
      for (int64_t i = 0; i < a.picks; ++i) sound &= static_cast<uint32_t>(picked[i]) + 1 < seen;
    }
  }
  return sound ? 0 : 1;
}

CORE_API int64_t core_cpu_state_rows(const core_state_rows_args* args) {
  const core_state_rows_args& a = *args;
  if (a.query_starts[0] != 0 || a.query_starts[a.rows] != a.tokens) return 1;
  for (int64_t row = 0; row < a.rows; ++row) {
    if (a.query_starts[row + 1] < a.query_starts[row]) return 1;
  }
  return all_within(a.state_slots, a.rows, a.slots) ? 0 : 1;
}
