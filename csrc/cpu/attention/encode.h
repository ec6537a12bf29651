// Attention within the prompts of a step: every token sees those before and behind it, and nothing is kept. Strides
// count elements of `dtype`.
#pragma once

#include "common/types.h"

extern "C" {

// Row r has tokens query_starts[r] .. query_starts[r + 1] - 1. Query head h reads kv head h / (heads / kv_heads).
//
// - Heads of a token lie right after one another, `head_dim` elements each, of any number up to 256.
// - A token at place p of its row sees the places p - reach .. p + reach; `reach` -1: all of them.
// - `dtype`: float32 or bfloat16.
// - `scratch` holds core_cpu_encode_scratch(args) bytes, aligned to 64.
struct core_encode_args {
  const void *q, *k, *v;
  void* out;
  const int32_t* query_starts;
  void* scratch;
  int64_t rows, heads, kv_heads, head_dim;
  int64_t q_stride, k_stride, v_stride, out_stride, reach;
  int64_t dtype, threads;
  double scale;
};

void core_cpu_encode(const core_encode_args* args);

// Bytes of scratch for these sizes (pointers, rows and strides are not read): enough for any batch.
int64_t core_cpu_encode_scratch(const core_encode_args* args);

}  // extern "C"
