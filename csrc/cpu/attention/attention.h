// Paged attention. Strides count elements of the cache's dtype.
//
// The cache of one layer is `(blocks, 2, kv_heads, ...)`: keys, then values, head by head. Inside, B = block_size,
// D = head_dim, t = token of the block, d = dimension:
//
//   bfloat16, int8  key (t, d) at (d / 2) * 2B + 2t + d % 2    value (t, d) at (t / 2) * 2D + 2d + t % 2
//   all others      key (t, d) at d * B + t                    value (t, d) at t * D + d
//   int8            behind the B * D elements of a head, as 4 bytes each: the scale of token t at B * D + 4t
//
// So a vector register loaded from the keys holds one dimension (or a pair) of consecutive tokens, and scores need no
// sums across lanes; one loaded from the values holds one token (or a pair) of consecutive dimensions. The pairs are
// what dot products of bf16 and of 16-bit integers and the AMX tile product read, and cost shifts where none exists. The scales
// of a block lie inside it: whoever copies a block copies them, and a step multiplies them to scores and weights, not
// to every element.
#pragma once

#include "common/types.h"

extern "C" {

// Row r of the batch has queries query_starts[r] .. query_starts[r + 1] - 1, the last of which is position
// seq_lens[r] - 1 of its sequence; keys and values of all seq_lens[r] positions are in the cache. Query head h reads
// kv head h / (heads / kv_heads). A query at position p sees positions p - window + 1 .. p (window 0: all up to p).
//
// - `block_size` is a multiple of 16, `head_dim` of 16 and at most 256, `block_stride` the elements of a block.
// - `table` holds block numbers, row by row `table_stride` apart; entries after a row's last block are not read.
// - `value_scale` times what the cache holds are the values; a scale of the keys is a part of `scale`.
// - `softcap` 0: none; else scores become softcap * tanh(score / softcap).
// - `slopes` of the query heads: slope * (key position - query position) is added to a score, behind scale and cap; null:
//   nothing is. `rooted` 1: -slope * sqrt(query position - key position) is added instead.
// - `sinks` of the query heads: each is the score of a key without a value; null: there is none.
// - `dtype` of `q` and `out`: float32 or bfloat16. `kv_dtype` of the cache: any but uint8.
// - `scratch` holds core_cpu_attention_scratch(args) bytes, aligned to 64.
struct core_attention_args {
  const void* q;
  const void* cache;
  void* out;
  const int32_t *query_starts, *seq_lens, *table;
  void* scratch;
  const float *slopes, *sinks;
  int64_t rows, heads, kv_heads, head_dim, block_size, block_stride;
  int64_t q_stride, out_stride, table_stride, window;
  int64_t dtype, kv_dtype, threads;
  double scale, softcap, value_scale, rooted;
};

void core_cpu_attention(const core_attention_args* args);

// Bytes of scratch for these sizes (pointers, rows and lengths are not read): enough for any batch.
int64_t core_cpu_attention_scratch(const core_attention_args* args);

// Stores k and v `(tokens, kv_heads, head_dim)` of `dtype`, tokens `*_stride` apart, at slots[token] = block *
// block_size + offset of a cache of `kv_dtype`, divided by `key_scale` and `value_scale`. Values round to nearest even; those beyond the largest finite one
// become that; int8 has a scale for each token and head, so that the largest becomes 127,
// and takes no other.
struct core_store_kv_args {
  const void *k, *v;
  void* cache;
  const int64_t* slots;
  int64_t tokens, kv_heads, head_dim, k_stride, v_stride, block_size, block_stride;
  int64_t dtype, kv_dtype, threads;
  double key_scale, value_scale;
};

void core_cpu_store_kv(const core_store_kv_args* args);

}  // extern "C"
