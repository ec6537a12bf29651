// Attention to compressed entries (DeepSeek V4): `ratio` tokens of a row leave one entry of `head_dim` elements, which
// is key and value of all heads. It lies in the block of its tokens: of a block's entries there are `block_size`.
//
// The cache `(blocks, block_size, head_dim)` is that of latent.h with a rope_dim of 0, and so is its store. A query at
// position p sees the first `(p + 1) / ratio` entries of its row, with `picks` those in `picked (tokens, picks)` where
// the row has more of them; -1 stands for none.
#pragma once

#include "common/types.h"

extern "C" {

// q `(tokens, heads, head_dim)` of `dtype`, one behind the other, head_dim rounded up to a multiple of 16 and filled
// with zeros -> out `(tokens, heads, head_dim)`, likewise, the mean of the entries by the softmax of `scale * q . entry`
// and sums `(tokens, heads)`, the logarithm of the sum of `exp(score)`: zeros and minus infinity for no entry.
struct core_entry_attention_args {
  const void *q, *cache;
  float *out, *sums;
  const int32_t *picked, *query_starts, *seq_lens, *table;
  void* scratch;  // core_cpu_entry_attention_scratch(args) bytes, aligned to 64
  int64_t rows, heads, head_dim, block_size, ratio, picks, table_stride, dtype, kv_dtype, threads;
  double scale;
};

void core_cpu_entry_attention(const core_entry_attention_args* args);

// Bytes of scratch for these sizes (pointers, rows and strides are not read): enough for any batch.
int64_t core_cpu_entry_attention_scratch(const core_entry_attention_args* args);

}  // extern "C"
