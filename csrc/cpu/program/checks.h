// Looks at the numbers of a step before kernels read and write by them. They compute nothing.
#pragma once

#include "common/types.h"

extern "C" {

// Numbers that are places in something of `limit` places.
struct core_range_args {
  const int64_t* values;  // (count)
  int64_t count, limit;
};

// Returns 0 if all of them are 0 .. limit - 1, else 1.
CORE_API int64_t core_cpu_range(const core_range_args* args);

// A batch as `attention/attention.h` says, whose step has `tokens` tokens.
struct core_batch_args {
  const int32_t *query_starts, *seq_lens, *table;
  const int64_t* slots;
  int64_t rows, tokens, table_stride, table_width;
  int64_t block_size, blocks;  // of the cache; blocks 0: there is none, and only `query_starts` is looked at
};

// Returns 0 if a kernel may read and write where the batch says, else 1: the rows share the tokens of the step in order,
// no row has more queries than tokens, none more tokens than its table has room for, and all blocks and slots that are
// named lie in the cache.
CORE_API int64_t core_cpu_batch(const core_batch_args* args);

// Positions that queries are limited to: `picked (tokens, picks)`, of a batch as `attention/attention.h` says. With a
// `ratio` numbers of entries, of which a query at position p sees `(p + 1) / ratio`.
struct core_picked_args {
  const int32_t *picked, *query_starts, *seq_lens;
  int64_t rows, picks, ratio;
};

// Returns 0 if each is one that the query may see, or -1, else 1.
CORE_API int64_t core_cpu_picked(const core_picked_args* args);

// The rows of a step and the slots of their states.
struct core_state_rows_args {
  const int64_t *state_slots, *fresh;  // (rows)
  const int32_t* query_starts;         // (rows + 1)
  int64_t rows, tokens, slots;         // slots: for how many there is memory
};

// Returns 0 if the rows share the tokens of the step in order and each has a slot there is memory for, else 1.
CORE_API int64_t core_cpu_state_rows(const core_state_rows_args* args);

}  // extern "C"
