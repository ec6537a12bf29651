// Activations that meet blocks of weights, and how a block's sum joins a result. Included per instruction set.
//
// With CORE_GEMM_BY_ROW a result must not depend on how many rows are computed with it: every kernel of block formats,
// but the widening (widen.h), rounds activations by `quantize_block` and adds blocks in their order by `add_sum`, then
// `multiply_add` where there is a minimum.
#pragma once

#include "gemm/blocks.h"
#include "gemm/integers.h"

namespace core {
namespace gemm {
namespace {

// 32 activations.
struct XBlock {
  int8_t values[32];
  float scale;
  float sum;          // of the values, times the scale
  int32_t start[2];   // -zero * (sum of the values): of all, or of either half where these have scales of their own
};
static_assert(sizeof(XBlock) == 48, "rows are arrays of this");

// What a block adds to a result: its sum of products of integers, times the scales of weights and activations.
CORE_INLINE vf add_sum(vf total, vi sum, vf factor, float scale) {
  return multiply_add(__builtin_convertvector(sum, vf), factor * scale, total);
}

template <typename F, typename From>
CORE_INLINE void quantize_block(const From* from, int64_t count, XBlock* to) {
  float scale = count < kBlock ? row_scale(from, count) : block_scale(from);
  Divisor by{scale, 1.0f / scale};
  int32_t sums[2] = {0, 0};
  for (int half = 0; half < 2; ++half) {
    vi total{};
    for (int i = half * 16; i < half * 16 + 16; i += kLanes) {
      vi values = quantize_lanes(from + i, count - i, by);
      store_bytes(values, to->values + i);
      total += values;
    }
    if (F::zero != 0 || F::has_minimum) sums[half] = sum_of(total);
  }
  to->scale = scale;
  to->sum = scale * static_cast<float>(sums[0] + sums[1]);
  to->start[0] = -F::zero * (F::kind == Scales::halves ? sums[0] : sums[0] + sums[1]);
  to->start[1] = -F::zero * sums[1];
}

}  // namespace
}  // namespace gemm
}  // namespace core
