// Paged attention. Strides count elements.
//
// The cache of one layer is `(blocks, 2, kv_heads, block_size * head_dim)`: keys, then values, head by head. Inside,
// B = block_size, D = head_dim, t = token of the block, d = dimension:
//
//   float32   key (t, d) at d * B + t                          value (t, d) at t * D + d
//   bfloat16  key (t, d) at (d / 2) * 2B + 2t + d % 2          value (t, d) at (t / 2) * 2D + 2d + t % 2
//
// So a vector register loaded from the keys holds one dimension (bf16: two) of consecutive tokens, and scores need no
// sums across lanes; one loaded from the values holds one token (bf16: two) of consecutive dimensions. The pairs are
// what the bf16 dot product and the AMX tile product read, and cost a shift or a mask where neither exists.
#pragma once

#include "common/types.h"

extern "C" {

// Row r of the batch has queries query_starts[r] .. query_starts[r + 1] - 1, the last of which is position
// seq_lens[r] - 1 of its sequence; keys and values of all seq_lens[r] positions are in the cache. Query head h reads
// kv head h / (heads / kv_heads). A query at position p sees positions p - window + 1 .. p (window 0: all up to p).
//
// - `block_size` is a multiple of 16, `head_dim` of 16 and at most 256, `block_stride` the elements of a block.
// - `table` holds block numbers, row by row `table_stride` apart; entries after a row's last block are not read.
// - `softcap` 0: none; else scores become softcap * tanh(score / softcap).
// - `scratch` holds core_cpu_attention_scratch(args) bytes, aligned to 64.
struct core_attention_args {
  const void* q;
  const void* cache;
  void* out;
  const int32_t *query_starts, *seq_lens, *table;
  void* scratch;
  int64_t rows, heads, kv_heads, head_dim, block_size, block_stride;
  int64_t q_stride, out_stride, table_stride, window;
  int64_t dtype, threads;
  double scale, softcap;
};

void core_cpu_attention(const core_attention_args* args);

// Bytes of scratch for these sizes (pointers, rows and lengths are not read): enough for any batch.
int64_t core_cpu_attention_scratch(const core_attention_args* args);

}  // extern "C"
