// Mixtures of experts: which experts a token has, and products of each token with its own experts' weights.
//
// A pair is a token and one of its experts: pair `token * top_k + place`. Rows by expert are the pairs ordered by
// expert, then by token, then by place. A pair whose id is no expert (-1, or any other number) comes last: its row is
// zeros, and adds nothing to a sum.
//
// Weights of an expert are panels as gemm/gemm.h says; those of the next one begin `expert_bytes` behind. Each expert is
// multiplied by the kernel that serves as many rows as it has, as a layer of its own would be.
#pragma once

#include "common/types.h"

constexpr int64_t CORE_MOST_EXPERTS = 2048;  // that can be chosen among

enum core_score : int64_t { CORE_SOFTMAX = 0, CORE_SIGMOID = 1, CORE_SQRT_SOFTPLUS = 2 };

// What groups of experts are chosen by: the largest score of each, or the sum of the two largest.
enum core_group_by : int64_t { CORE_GROUP_MAX = 0, CORE_GROUP_TOP2 = 1 };

// See `core.api.experts.Routing`. Of equal scores the expert of the lowest number is chosen first.
struct core_route_args {
  const float* logits;      // (tokens, experts), rows `stride` elements apart
  const float* correction;  // (experts): added to the scores for the choice alone; or null
  float* weights;           // (tokens, top_k)
  int32_t* ids;             // (tokens, top_k), the best first
  int64_t tokens, experts, top_k, stride;
  int64_t score;        // enum core_score
  int64_t chosen_only;  // whether the choice is by the logits, and scores are those of the chosen experts
  int64_t groups, top_groups;
  int64_t group_by;  // enum core_group_by
  int64_t renormalize, threads;
  double eps, factor;
  double cap;  // the logits become cap * tanh(logits / cap); 0: they stay
};

CORE_API void core_cpu_route(const core_route_args* args);

// y[token] = out[token] + x[token] * the sum of the token's weights whose ids are `experts` or more.
struct core_add_identities_args {
  const void* out;       // (tokens, size), rows `out_stride` elements apart
  const void* x;         // the same, `x_stride`
  const float* weights;  // (tokens, top_k)
  const int32_t* ids;    // (tokens, top_k)
  void* y;               // (tokens, size)
  int64_t tokens, top_k, experts, size, out_stride, x_stride;
  int64_t dtype;  // of out, x and y: CORE_F32 or CORE_BF16
  int64_t threads;
};

CORE_API void core_cpu_add_identities(const core_add_identities_args* args);

// y[row] = x[token of row] . W[expert of row]^T + bias[expert of row], for all rows by expert.
struct core_experts_in_args {
  const void* x;       // (tokens, k), rows `x_stride` elements apart
  const void* w;       // packed weights of all experts
  const int32_t* ids;  // (tokens, top_k)
  const float* bias;   // (experts, n), rows `bias_stride` elements apart; or null
  void* y;             // (tokens * top_k, n), rows `y_stride` elements apart
  void* workspace;     // core_cpu_experts_in_workspace() bytes, 64-byte aligned; no two calls at once may share it
  int64_t tokens, top_k, experts, n, k;
  int64_t expert_bytes, bias_stride, x_stride, y_stride;
  int64_t x_dtype, y_dtype;  // CORE_F32 or CORE_BF16
  int64_t format;            // as in core_gemm_args
  int64_t threads;
};

CORE_API void core_cpu_experts_in(const core_experts_in_args* args);

// Bytes of workspace that a call with these sizes and these or fewer tokens needs; pointers are not looked at.
CORE_API int64_t core_cpu_experts_in_workspace(const core_experts_in_args* args);

// y[token] = sum of weights[pair] * (x[row of pair] . W[expert of pair]^T + bias[expert of pair]) over the pairs of the
// token, in their order, in float32.
struct core_experts_out_args {
  const void* x;         // (tokens * top_k, k), rows by expert, `x_stride` elements apart
  const void* w;         // packed weights of all experts
  const float* weights;  // (tokens, top_k)
  const int32_t* ids;    // (tokens, top_k)
  const float* bias;     // (experts, n), rows `bias_stride` elements apart; or null
  void* y;               // (tokens, n), rows `y_stride` elements apart
  void* workspace;       // as above, by core_cpu_experts_out_workspace()
  int64_t tokens, top_k, experts, n, k;
  int64_t expert_bytes, bias_stride, x_stride, y_stride;
  int64_t x_dtype, y_dtype;
  int64_t format;
  int64_t threads;
};

CORE_API void core_cpu_experts_out(const core_experts_out_args* args);
CORE_API int64_t core_cpu_experts_out_workspace(const core_experts_out_args* args);
