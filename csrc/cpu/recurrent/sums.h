// Sums of the lanes of several vectors at once. Included per instruction set.
#pragma once

#include "common/vec.h"

namespace core {
namespace CORE_VARIANT {
namespace {

#if defined(__AVX512F__)
// Two vectors of sums of pairs, or of quarters, as one.
CORE_INLINE __m512 joined(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}
CORE_INLINE __m512 joined_pairs(__m512 a, __m512 b) {
  __m512d one = _mm512_castps_pd(a), other = _mm512_castps_pd(b);
  return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(one, other)),
                       _mm512_castpd_ps(_mm512_unpackhi_pd(one, other)));
}
CORE_INLINE __m512 joined_quarters(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
#endif

// Lane i: the sum of the lanes of x[i].
CORE_INLINE vf sums(const vf (&x)[kLanes]) {
#if defined(__AVX512F__)
  __m512 quarters[4];
  CORE_UNROLL
  for (int i = 0; i < 4; ++i) {
    quarters[i] = joined_pairs(joined((__m512)x[4 * i], (__m512)x[4 * i + 1]),
                               joined((__m512)x[4 * i + 2], (__m512)x[4 * i + 3]));
  }
  return (vf)joined_quarters(joined_quarters(quarters[0], quarters[1]), joined_quarters(quarters[2], quarters[3]));
#elif defined(__AVX2__)
  __m256 halves[2];
  CORE_UNROLL
  for (int i = 0; i < 2; ++i) {
    halves[i] = _mm256_hadd_ps(_mm256_hadd_ps((__m256)x[4 * i], (__m256)x[4 * i + 1]),
                               _mm256_hadd_ps((__m256)x[4 * i + 2], (__m256)x[4 * i + 3]));
  }
  return (vf)_mm256_add_ps(_mm256_permute2f128_ps(halves[0], halves[1], 0x20),
                           _mm256_permute2f128_ps(halves[0], halves[1], 0x31));
#elif defined(__aarch64__)
  return (vf)vpaddq_f32(vpaddq_f32((float32x4_t)x[0], (float32x4_t)x[1]),
                        vpaddq_f32((float32x4_t)x[2], (float32x4_t)x[3]));
#else
  vf total;
  for (int i = 0; i < kLanes; ++i) total[i] = sum(x[i]);
  return total;
#endif
}

constexpr int kSummed = 4;

// The same of vectors that come in turn, so that few of them are there at once: make(i, x) fills x with vectors
// `kSummed * i` to `kSummed * i + 3`.
template <typename Make>
CORE_INLINE vf sums_in_turn(const Make& make) {
#if defined(__AVX512F__)
  __m512 quarters[4];
  CORE_UNROLL
  for (int i = 0; i < 4; ++i) {
    vf x[kSummed];
    make(i, x);
    quarters[i] = joined_pairs(joined((__m512)x[0], (__m512)x[1]), joined((__m512)x[2], (__m512)x[3]));
  }
  return (vf)joined_quarters(joined_quarters(quarters[0], quarters[1]), joined_quarters(quarters[2], quarters[3]));
#else
  vf all[kLanes];
  CORE_UNROLL
  for (int i = 0; i < kLanes / kSummed; ++i) {
    vf x[kSummed];
    make(i, x);
    CORE_UNROLL
    for (int j = 0; j < kSummed; ++j) all[kSummed * i + j] = x[j];
  }
  return sums(all);
#endif
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
