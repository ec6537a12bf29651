// Products of each head's vectors with a matrix of its own: queries brought to the latents, latents made values.
#pragma once

#include <atomic>

#include "attention/latent_plan.h"
#include "common/parallel.h"
#include "common/vec.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// Register tiles: tokens x vectors of results. Memory sets the pace of few tokens, and gives more when more of a row is
// read at a time.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int64_t kSums = 16;
#else
constexpr int64_t kSums = 8;
#endif

// y[t][0 .. Vectors * kLanes) = x[t] @ w for `Tokens` tokens, `outputs` apart; weights lie row by row.
template <int64_t Tokens, int64_t Vectors, typename T>
CORE_INLINE void product_tile(const float* x, const T* w, float* y, int64_t inputs, int64_t outputs) {
  vf sums[Tokens][Vectors] = {};
  for (int64_t i = 0; i < inputs; ++i) {
    vf row[Vectors];
    CORE_UNROLL
    for (int64_t j = 0; j < Vectors; ++j) row[j] = load(w + i * outputs + j * kLanes);
    CORE_UNROLL
    for (int64_t t = 0; t < Tokens; ++t) {
      CORE_UNROLL
      for (int64_t j = 0; j < Vectors; ++j) sums[t][j] += row[j] * x[t * inputs + i];
    }
  }
  CORE_UNROLL
  for (int64_t t = 0; t < Tokens; ++t) {
    CORE_UNROLL
    for (int64_t j = 0; j < Vectors; ++j) store(y + t * outputs + j * kLanes, sums[t][j]);
  }
}

// The same for all results, by ever narrower tiles.
template <int64_t Tokens, int64_t Vectors, typename T>
void product_rows(const float* x, const T* w, float* y, int64_t inputs, int64_t outputs, int64_t from) {
  for (; from + Vectors * kLanes <= outputs; from += Vectors * kLanes) {
    product_tile<Tokens, Vectors>(x, w + from, y + from, inputs, outputs);
  }
  if constexpr (Vectors > 1) {
    if (from < outputs) product_rows<Tokens, Vectors / 2>(x, w, y, inputs, outputs, from);
  }
}

template <typename T>
void multiply_tokens(const float* x, const T* w, float* y, int64_t count, int64_t inputs, int64_t outputs) {
  for (int64_t t = 0; t < count;) {
    int64_t left = count - t, some = left >= 4 ? 4 : left >= 2 ? 2 : 1;
    const float* from = x + t * inputs;
    float* to = y + t * outputs;
    if (some == 4) product_rows<4, kSums / 4>(from, w, to, inputs, outputs, 0);
    if (some == 2) product_rows<2, kSums / 2>(from, w, to, inputs, outputs, 0);
    if (some == 1) product_rows<1, kSums>(from, w, to, inputs, outputs, 0);
    t += some;
  }
}

inline bool takes_part(const core_head_product_args& a, int64_t row) {
  int64_t queries = a.query_starts[row + 1] - a.query_starts[row];
  return !is_expanded(queries, a.seq_lens[row], a.latent_dim, a.key_dim, a.value_dim, a.picks);
}

// Calls body(index, token) for those of the tokens that take part which are number `begin .. end - 1` of them.
template <typename Body>
void for_tokens(const core_head_product_args& a, int64_t begin, int64_t end, const Body& body) {
  int64_t before = 0;
  for (int64_t row = 0; row < a.rows && before < end; ++row) {
    if (!takes_part(a, row)) continue;
    int64_t first = a.query_starts[row], count = a.query_starts[row + 1] - first;
    int64_t from = begin > before ? begin - before : 0, to = end - before < count ? end - before : count;
    for (int64_t i = from; i < to; ++i) body(before + i - begin, first + i);
    before += count;
  }
}

inline int64_t count_tokens(const core_head_product_args& a) {
  int64_t count = 0;
  for (int64_t row = 0; row < a.rows; ++row) {
    if (takes_part(a, row)) count += a.query_starts[row + 1] - a.query_starts[row];
  }
  return count;
}

template <typename T>
void load_floats(const T* x, float* out, int64_t dims, int64_t padded) {
  int64_t d = 0;
  for (; d + kLanes <= dims; d += kLanes) store(out + d, load(x + d));
  for (; d < padded; d += kLanes) store(out + d, d < dims ? load_part(x + d, dims - d) : vf{});
}

template <typename T>
void store_floats(const float* x, T* out, int64_t dims) {
  int64_t d = 0;
  for (; d + kLanes <= dims; d += kLanes) store(out + d, load(x + d));
  if (d < dims) store_part(out + d, load(x + d), dims - d);
}

// One head for `count` tokens from number `begin` on.
template <typename T>
void multiply_head(const core_head_product_args& a, int64_t head, int64_t begin, int64_t count, float* scratch) {
  int64_t inputs = round_up(a.inputs, kVector), outputs = round_up(a.outputs, kVector);
  float *x = scratch, *y = scratch + kProductTokens * inputs;
  for_tokens(a, begin, begin + count, [&](int64_t i, int64_t token) {
    auto from = static_cast<const T*>(a.x) + token * a.x_stride + head * a.x_head_stride;
    load_floats(from, x + i * inputs, a.inputs, inputs);
  });
  auto w = static_cast<const T*>(a.w) + head * inputs * outputs;
  multiply_tokens(x, w, y, count, inputs, outputs);
  for_tokens(a, begin, begin + count, [&](int64_t i, int64_t token) {
    store_floats(y + i * outputs, static_cast<T*>(a.out) + (token * a.heads + head) * a.outputs, a.outputs);
  });
}

template <typename T>
void multiply_heads(const core_head_product_args& a) {
  int64_t tokens = count_tokens(a), blocks = ceil_div(tokens, kProductTokens), units = a.heads * blocks;
  if (tokens == 0) return;
  int64_t floats = kProductTokens * (round_up(a.inputs, kVector) + round_up(a.outputs, kVector));
  int64_t most = tokens * a.heads * a.inputs * a.outputs < 1 << 16 ? 1 : a.threads;
  run_pieces(most, units, [&](int64_t thread, Pieces& pieces) {
    float* mine = static_cast<float*>(a.scratch) + thread * floats;
    for (int64_t next; pieces.take(&next);) {
      int64_t begin = next % blocks * kProductTokens, left = tokens - begin;
      multiply_head<T>(a, next / blocks, begin, left < kProductTokens ? left : kProductTokens, mine);
    }
  });
}

}  // namespace

void head_product(const core_head_product_args* a) {
  a->dtype == CORE_BF16 ? multiply_heads<bf16>(*a) : multiply_heads<float>(*a);
}

}  // namespace CORE_VARIANT
}  // namespace core
