// Products of each head's vectors with a matrix of its own: queries brought to the latents, latents made values.
#pragma once

#include <atomic>

#include "attention/latent_plan.h"
#include "attention/products.h"
#include "common/parallel.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// Weights row by row as they lie in memory, widened to float32 as they are read. Each meets few tokens: memory sets
// the pace, so that it pays for no other form.
template <typename T_>
struct RowMajor {
  using T = T_;
  using Query = float;
  using Weight = float;
  static constexpr int64_t kPack = 1, kWords = 1, kRows = kManyRows;
  static constexpr bool kBfloat16Queries = false;
  struct Vector {
    vf v;
  };
  CORE_INLINE static Vector vector(const T* p) { return {load(p)}; }
  CORE_INLINE static vf multiply(vf sum, const float* broadcast, Vector b) { return sum + *broadcast * b.v; }
  CORE_INLINE static void store_weights(float* p, int64_t k, vf weights) { store(p + k, weights); }
};

inline bool takes_part(const core_head_product_args& a, int64_t row) {
  int64_t queries = a.query_starts[row + 1] - a.query_starts[row];
  return !is_expanded(queries, a.seq_lens[row], a.latent_dim, a.key_dim, a.value_dim);
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
  std::memset(y, 0, static_cast<size_t>(count * outputs) * 4);
  auto w = static_cast<const T*>(a.w) + head * inputs * outputs;
  Loops<RowMajor<T>>::accumulate(x, inputs, w, y, nullptr, count, outputs, 0, inputs);
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
  std::atomic<int64_t> ticket{0};
  run_team(most < units ? most : units, [&](int64_t thread, int64_t) {
    float* mine = static_cast<float*>(a.scratch) + thread * floats;
    for (int64_t next = ticket.fetch_add(1); next < units; next = ticket.fetch_add(1)) {
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
