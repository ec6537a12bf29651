// Entries of this folder: recurrences over the tokens of each row, which keep a state for each request.
#pragma once

#include "common/types.h"

extern "C" {

// Row r has tokens query_starts[r] .. query_starts[r + 1] - 1 of the step, and its state begins state_slots[r] times
// `slot_stride` elements behind `state`: read before the first token, written behind the last one. Where fresh[r] is not
// 0 the state counts as zeros, whatever lies there. No two rows have one slot.
//
// Strides count elements from token to token; what belongs to one token lies next to each other. Results of a token
// follow those of the one before. Numbers without a `dtype` of their own are float32, and so is what is computed.

constexpr int64_t CORE_MOST_CONV_WIDTH = 16;

// out[c] = act(bias[c] + sum of weight[c, j] * x[c] of the token `width - 1 - j` before). Act: SiLU if `activation`.
struct core_causal_conv_args {
  const void *x, *weight, *bias;  // weight (channels, width); bias null: 0
  void *out, *state;              // a state is (channels, width - 1): x of the tokens before, the latest last
  const int64_t *state_slots, *fresh;
  const int32_t* query_starts;
  int64_t tokens, rows, channels, width, x_stride, slot_stride, activation;
  int64_t dtype, weight_dtype, state_dtype, threads;  // float32 or bfloat16 each
};

constexpr int64_t CORE_MOST_KEY_DIM = 256;

// S = exp(decay) * S + k (x) u, out = scale * q S, for each head. u is v; with `beta` it is beta * (v - k S), S being
// decayed already.
struct core_linear_attention_args {
  const void *q, *k, *v;    // heads of key_dim, of key_dim, of value_dim elements of `dtype`
  const float *decay, *beta;  // (heads), or (heads, key_dim) if `per_key`; (heads) or null
  void* out;
  float* state;  // (heads, key_dim, value_dim)
  const int64_t *state_slots, *fresh;
  const int32_t* query_starts;
  int64_t tokens, rows, heads, key_heads, key_dim, value_dim;
  int64_t q_stride, k_stride, v_stride, decay_stride, beta_stride, slot_stride, per_key;
  int64_t dtype, threads;
  double scale;
};

constexpr int64_t CORE_MOST_STATE_DIM = 256;

// h[i] = exp(step[i] * a[i]) * h[i] + step[i] * x[i] * b, out[i] = h[i] . c, for each channel i; h[i], a[i], b and c have
// `state_dim` numbers.
struct core_selective_scan_args {
  const void* x;
  const float *step, *a;  // a (channels, state_dim)
  const void *b, *c;
  void* out;
  float* state;  // (channels, state_dim)
  const int64_t *state_slots, *fresh;
  const int32_t* query_starts;
  int64_t tokens, rows, channels, state_dim, x_stride, step_stride, b_stride, c_stride, slot_stride;
  int64_t dtype, threads;
};

// h[c] = exp(decay[c]) * h[c] + x[c], out[c] = h[c].
struct core_gated_recurrence_args {
  const void* x;
  const float* decay;
  void* out;
  float* state;  // (channels)
  const int64_t *state_slots, *fresh;
  const int32_t* query_starts;
  int64_t tokens, rows, channels, x_stride, decay_stride, slot_stride;
  int64_t dtype, threads;
};

void core_cpu_causal_conv(const core_causal_conv_args* args);
void core_cpu_linear_attention(const core_linear_attention_args* args);
void core_cpu_selective_scan(const core_selective_scan_args* args);
void core_cpu_gated_recurrence(const core_gated_recurrence_args* args);

}  // extern "C"
