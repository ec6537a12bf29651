// Activations that meet blocks of weights, and how a block's sum joins a result. Included per instruction set.
//
// They are rounded in one of two ways, for each 32 of them: coarse, to int8, or fine, to 15 bits by a power of two, which
// is exact for bfloat16 that is not far smaller than the largest of the 32. Sums are those of
// products of bytes, of which a fine one takes two, or of 16-bit integers, according to the instruction set and the codes;
// they are the same, because integer sums are exact.
//
// With CORE_GEMM_BY_ROW a result must not depend on how many rows are computed with it: every kernel of block formats,
// but the widening (widen.h), rounds activations by `quantize_block` and adds blocks in their order by `add_sum`, then
// `multiply_add` where there is a minimum.
#pragma once

#include <type_traits>

#include "gemm/blocks.h"
#include "gemm/integers.h"

namespace core {
namespace gemm {
namespace {

// What comes with 32 activations.
struct XScales {
  float scale;
  float sum;         // of the values, times the scale
  int32_t start[2];  // -zero * (sum of the values): of all, or of either half where these have scales of their own
};

// To int8: the largest magnitude of 32 activations is 127.
struct ToBytes {
  template <typename From>
  CORE_INLINE static Divisor divisor(const From* from, int64_t count) {
    float scale = (count < kBlock ? largest_of(from, count) : largest_of_block(from)) / 127.0f;
    if (!(scale > 0.0f)) scale = 1.0f;
    return {scale, 1.0f / scale};
  }
  CORE_INLINE static vi round(vf x, const Divisor& by) { return nearest(divide(x, by.scale, by.inverse)); }
};

// To 15 bits: it is between 2^13 and 2^14.
struct To15Bits {
  template <typename From>
  CORE_INLINE static Divisor divisor(const From* from, int64_t count) {
    float largest = count < kBlock ? largest_of(from, count) : largest_of_block(from);
    uint32_t bits;
    std::memcpy(&bits, &largest, 4);
    uint32_t power = bits >> 23, least = 14;
    uint32_t scale_bits = ((power > least ? power : least) - 13) << 23, inverse_bits = (254u << 23) - scale_bits;
    if (power == 255) scale_bits = 0x7fc00000u;  // what is not finite makes no number
    Divisor by;
    std::memcpy(&by.scale, &scale_bits, 4);
    std::memcpy(&by.inverse, &inverse_bits, 4);
    return by;
  }
  CORE_INLINE static vi round(vf x, const Divisor& by) { return nearest(x * by.inverse); }
};

// 32 activations, as bytes.
struct Coarse : ToBytes {
  int8_t values[32];
  XScales with;

  CORE_INLINE void put(int i, vi value) { store_bytes(value, values + i); }
};
static_assert(sizeof(Coarse) == 48, "rows are arrays of this");

struct Fine : To15Bits {
  int8_t values[32], high[32];  // value = 256 * high + values
  XScales with;

  CORE_INLINE void put(int i, vi value) {
    store_bytes(value, values + i);
    store_bytes((value + 128) >> 8, high + i);
  }
};
static_assert(sizeof(Fine) == 80, "rows are arrays of this");

// The same for products of 16-bit integers.
struct FinePairs : To15Bits {
  int16_t values[32];  // in the order 0 2 1 3: the even and the odd bytes of a dword of codes meet them
  XScales with;

  CORE_INLINE void put(int i, vi value) {
    for (int j = 0; j < kLanes; j += 4) {
      const int16_t four[4] = {static_cast<int16_t>(value[j]), static_cast<int16_t>(value[j + 2]),
                               static_cast<int16_t>(value[j + 1]), static_cast<int16_t>(value[j + 3])};
      std::memcpy(values + i + j, four, 8);
    }
  }
};
static_assert(sizeof(FinePairs) == 80, "rows are arrays of this");

// Lines of a block whose products of codes and bytes can be added up in 16 bits, two products in each; 0: not one's, or
// there are no such instructions, or better ones. A power of two, so that runs of lines end where halves of a block do.
template <typename F>
constexpr int lines_in_16_bits() {
#if defined(CORE_UNSIGNED_DOTS) || !defined(__AVX2__)
  return 0;
#else
  constexpr int lines = 32767 / (2 * 128 * F::largest);
  return lines >= 8 && !F::halves ? 8 : lines >= 4 ? 4 : lines;
#endif
}

// Whether instructions multiply codes and bytes: otherwise both are widened to 16 bits first, fine activations beforehand.
template <typename F>
constexpr bool meets_bytes() {
#if defined(CORE_UNSIGNED_DOTS)
  return true;
#elif defined(__ARM_FEATURE_DOTPROD)
  return F::largest <= 127;  // both factors are signed
#else
  return lines_in_16_bits<F>() != 0;
#endif
}

template <typename F>
using FineOf = std::conditional_t<meets_bytes<F>(), Fine, FinePairs>;

// What a block adds to a result: its sum of products of integers, times the scales of weights and activations.
CORE_INLINE vf add_sum(vf total, vi sum, vf factor, float scale) {
  return multiply_add(__builtin_convertvector(sum, vf), factor * scale, total);
}

// The first `count` values at `from`, or 32 of more.
template <typename F, typename X, typename From>
CORE_INLINE void quantize_block(const From* from, int64_t count, X* to) {
  Divisor by = X::divisor(from, count);
  int32_t sums[2] = {0, 0};
  for (int half = 0; half < 2; ++half) {
    vi total{};
    for (int i = half * 16; i < half * 16 + 16; i += kLanes) {
      vi values = X::round(load_upto(from + i, count - i), by);
      to->put(i, values);
      total += values;
    }
    if (F::zero != 0 || F::has_minimum) sums[half] = sum_of(total);
  }
  to->with.scale = by.scale;
  to->with.sum = by.scale * static_cast<float>(sums[0] + sums[1]);
  to->with.start[0] = -F::zero * (F::halves ? sums[0] : sums[0] + sums[1]);
  to->with.start[1] = -F::zero * sums[1];
}

}  // namespace
}  // namespace gemm
}  // namespace core
