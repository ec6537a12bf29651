// Entries of this folder: argument structs (part of the ABI) and what they do. Strides count elements.
#pragma once

#include "common/types.h"

extern "C" {

// RMS norm over the last dimension, of `outer * inner` rows that lie `x_outer`, `x_inner` apart; `out` is contiguous.
// With `residual` (laid out like `out`, contiguous) the sum x + residual, rounded to the dtype, is written to `total`
// and normalised. `total` may be `residual`, `out` may be `x`.
struct core_rms_norm_args {
  const void* x;
  const void* residual;
  const void* weight;
  void* total;
  void* out;
  int64_t outer, inner, size;
  int64_t x_outer, x_inner;
  int64_t dtype, threads;
  double eps;
};

// Gated activation: rows of `x` are [gate, up], `size` each; `out` rows are act(gate) * up.
struct core_gated_args {
  const void* x;
  void* out;
  int64_t rows, size;
  int64_t x_stride, out_stride;
  int64_t activation;  // enum core_activation
  int64_t dtype, threads;
};

enum core_activation : int64_t { CORE_SILU = 0, CORE_GELU = 1, CORE_GELU_TANH = 2 };

// Layer norm over the last dimension, of rows that lie `x_stride` apart; `total` and `out` are contiguous. With
// `residual` the sum x + residual, rounded to the dtype, is written to `total` and normalised. `bias` may be null.
// `total` may be `residual`, `out` may be `x`.
struct core_layer_norm_args {
  const void *x, *residual, *weight, *bias;
  void *total, *out;
  int64_t rows, size, x_stride, residual_stride;
  int64_t dtype, threads;
  double eps;
};

// Activation of every element: out = act(x). `out` may be `x`.
struct core_activate_args {
  const void* x;
  void* out;
  int64_t rows, size;
  int64_t x_stride, out_stride;
  int64_t activation;  // enum core_activation
  int64_t dtype, threads;
};

// out[i] = x[i] + amount, for int64 elements.
struct core_shift_args {
  const int64_t* x;
  int64_t* out;
  int64_t count, amount;
};

// out[i] = table[ids[i]]; rows of `row_bytes`.
struct core_gather_args {
  const void* table;
  const int64_t* ids;
  void* out;
  int64_t count, row_bytes, threads;
};

// Rotary embedding of q and k, and storage of k and v in the paged cache, in one pass over the step's tokens.
//
// - `cos` null: nothing is rotated. `slots` null: nothing is stored; `v` may then be null.
// - The first `rotary` elements of a head form pairs (i, i + rotary / 2), or (2i, 2i + 1) where `interleaved` is not 0.
//   Row `p` of `cos` and `sin` (`table_stride` elements apart, `rotary / 2` used, of `table_dtype`) belongs to
//   position `p`.
// - `q_out`, `k_out` have heads of `head_dim` right after one another, tokens `*_out_stride` apart; null: not written.
//   They may be `q`, `k` where the strides agree.
// - `cache` is as `attention/attention.h` says; token i goes to block slots[i] / block_size.
struct core_rope_kv_args {
  const void *q, *k, *v;
  void *q_out, *k_out;
  void* cache;
  const int64_t *positions, *slots;
  const void *cos, *sin;
  int64_t tokens, heads, kv_heads, head_dim, rotary, interleaved;
  int64_t q_stride, k_stride, v_stride, q_out_stride, k_out_stride, table_stride;
  int64_t block_size, block_stride;
  int64_t dtype, table_dtype, threads;
};

void core_cpu_rms_norm(const core_rms_norm_args* args);
void core_cpu_layer_norm(const core_layer_norm_args* args);
void core_cpu_activate(const core_activate_args* args);
void core_cpu_shift(const core_shift_args* args);
void core_cpu_gated(const core_gated_args* args);
void core_cpu_gather(const core_gather_args* args);
void core_cpu_rope_kv(const core_rope_kv_args* args);

}  // extern "C"
