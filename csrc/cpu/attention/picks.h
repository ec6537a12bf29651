// Which positions the queries of latent attention see: those of the best scores by an index (DeepSeek V3.2, GLM-5).
// With a `ratio` which compressed entries they see (entries.h): an index key stands for so many tokens.
//
// A token keeps an index key of `key_dim` elements, in a cache `(blocks, block_size, key_dim)` of `kv_dtype`, of int8
// with a float32 scale behind each key: that of latent.h with a rope_dim of 0, and so is its store. The score of a
// query and a position is the sum over heads of `weights[h] * max(0, scale * q[h] . key)`, in float32.
//
// Index keys are read in bfloat16 where they and the queries lose nothing by it: scales are applied to scores.
#pragma once

#include "common/types.h"

extern "C" {

// q `(tokens, heads, key_dim)` of `dtype`, weights `(tokens, heads)` -> out `(tokens, picks)`: the positions of the
// best scores among those up to the query's own, in order, -1 behind them where there are fewer. Of a row that is no
// longer than `picks` nothing is scored. `query_starts`, `seq_lens` and `table` as in attention.h. With a `ratio`
// positions are numbers of entries, of which blocks hold `block_size`, and a query at position p sees the first
// `(p + 1) / ratio`.
struct core_pick_args {
  const void* q;
  const float* weights;
  const void* cache;
  int32_t* out;
  const int32_t *query_starts, *seq_lens, *table;
  void* scratch;  // core_cpu_pick_scratch(args) bytes, aligned to 64
  int64_t rows, heads, key_dim, block_size, picks, ratio, q_stride, q_head_stride, weights_stride, table_stride;
  int64_t dtype, kv_dtype, threads;
  double scale;
};

void core_cpu_pick(const core_pick_args* args);

// Bytes of scratch for these sizes (pointers, rows and strides are not read): enough for any batch.
int64_t core_cpu_pick_scratch(const core_pick_args* args);

}  // extern "C"
