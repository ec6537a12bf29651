// Vectors of float32 as wide as the instruction set of the including file, in the compiler's own vector types: one
// source for SSE2, NEON, AVX2 and AVX-512. Everything is in an unnamed namespace (see csrc/README.md).
#pragma once

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "common/types.h"

#define CORE_INLINE inline __attribute__((always_inline))

// Before a loop over the registers of a tile: without it the compiler keeps the tile in memory.
#if defined(__clang__)
#define CORE_UNROLL _Pragma("unroll")
#else
#define CORE_UNROLL _Pragma("GCC unroll 32")
#endif

namespace core {
namespace {

#if defined(__AVX512F__)
constexpr int kVecBytes = 64;
#elif defined(__AVX2__)
constexpr int kVecBytes = 32;
#else
constexpr int kVecBytes = 16;
#endif
constexpr int kLanes = kVecBytes / 4;

typedef float vf __attribute__((vector_size(kVecBytes)));
typedef int32_t vi __attribute__((vector_size(kVecBytes)));
typedef uint32_t vu __attribute__((vector_size(kVecBytes)));
typedef uint16_t vh __attribute__((vector_size(kVecBytes / 2)));
// The same in memory: any address, any declared type.
typedef float vf_mem __attribute__((vector_size(kVecBytes), aligned(1), may_alias));
typedef uint32_t vu_mem __attribute__((vector_size(kVecBytes), aligned(1), may_alias));
typedef uint16_t vh_mem __attribute__((vector_size(kVecBytes / 2), aligned(1), may_alias));

CORE_INLINE vf splat(float value) { return value - vf{}; }
CORE_INLINE vu splat_bits(uint32_t value) { return value + vu{}; }
CORE_INLINE vf as_float(vu bits) { return reinterpret_cast<vf>(bits); }
CORE_INLINE vu as_bits(vf value) { return reinterpret_cast<vu>(value); }

// Where either is a NaN: `b`.
CORE_INLINE vf vec_max(vf a, vf b) {
#if defined(__AVX512F__)
  return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return a > b ? a : b;
#endif
}
CORE_INLINE vf vec_min(vf a, vf b) {
#if defined(__AVX512F__)
  return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
  return a < b ? a : b;
#endif
}

// a * b + c: in one operation where there is one, whatever the compiler makes of the code around it.
CORE_INLINE vf multiply_add(vf a, vf b, vf c) {
#if defined(__AVX512F__)
  return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

CORE_INLINE vf load(const float* p) { return *reinterpret_cast<const vf_mem*>(p); }
// The values whose upper halves these are. By intrinsics: gcc 12 widens in two parts and joins them.
CORE_INLINE vf widen_bf16(vh half) {
#if defined(__AVX512F__)
  return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)half), 16);
#elif defined(__AVX2__)
  return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)half), 16);
#else
  return as_float(__builtin_convertvector(half, vu) << 16);
#endif
}
CORE_INLINE vf load(const bf16* p) { return widen_bf16(*reinterpret_cast<const vh_mem*>(p)); }
CORE_INLINE vu load_bits(const void* p) { return *reinterpret_cast<const vu_mem*>(p); }

CORE_INLINE void store(float* p, vf value) { *reinterpret_cast<vf_mem*>(p) = value; }

// Rounds to nearest even; a NaN stays one.
CORE_INLINE vh round_bf16(vf value) {
#if defined(__AVX512BF16__)
  return (vh)_mm512_cvtneps_pbh((__m512)value);
#else
  vu bits = as_bits(value);
  vu rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  vu quiet = (bits >> 16) | 0x40u;
  return __builtin_convertvector((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded, vh);
#endif
}
CORE_INLINE void store(bf16* p, vf value) { *reinterpret_cast<vh_mem*>(p) = round_bf16(value); }

// The first `count` lanes, the others 0.
template <typename T>
CORE_INLINE vf load_part(const T* p, int64_t count) {
  T part[kLanes] = {};
  std::memcpy(part, p, static_cast<size_t>(count) * sizeof(T));
  return load(part);
}

template <typename T>
CORE_INLINE void store_part(T* p, vf value, int64_t count) {
  T part[kLanes];
  store(part, value);
  std::memcpy(p, part, static_cast<size_t>(count) * sizeof(T));
}

CORE_INLINE float sum(vf value) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps((__m512)value);
#else
  float total = 0.0f;
  for (int lane = 0; lane < kLanes; ++lane) total += value[lane];
  return total;
#endif
}

CORE_INLINE float max_of(vf value) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps((__m512)value);
#else
  float best = value[0];
  for (int lane = 1; lane < kLanes; ++lane) best = value[lane] > best ? value[lane] : best;
  return best;
#endif
}

// e^x to 2e-7 relative; 0 below -87.3 and infinity above 88.3, where float32 leaves its normal range; NaN stays NaN.
CORE_INLINE vf exp(vf x) {
  constexpr float log2_e = 1.44269504f, ln2_high = 0.693145752f, ln2_low = 1.42860677e-6f;
  constexpr float round = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  vf bounded = vec_min(splat(88.3f), vec_max(splat(-87.3f), x));  // in this order a NaN passes through
  vf shifted = bounded * log2_e + round;
  vf n = shifted - round;
  vf r = bounded - n * ln2_high - n * ln2_low;
  // Least-squares fit of the relative error on |r| <= ln(2) / 2, the first two coefficients held at 1.
  vf p = r * 0.008333836682140827f + 0.041898809373378754f;
  p = p * r + 0.1666688621044159f;
  p = p * r + 0.49999141693115234f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  vu scale = (as_bits(shifted) << 23) + 0x3f800000u;
  vf value = p * as_float(scale);
  value = x > 88.3f ? splat(__builtin_inff()) : value;
  return x < -87.3f ? vf{} : value;
}

// 2^x for x < 127, to 1e-7 relative; 0 below -126; NaN stays NaN. What a softmax needs, and no more.
CORE_INLINE vf exp2(vf x) {
  vf given = x;
  x = vec_max(splat(-126.0f), x);
#if defined(__AVX512F__)
  vf n = (vf)_mm512_roundscale_ps((__m512)x, 0);
#else
  vf shifted = x + 12582912.0f, n = shifted - 12582912.0f;
#endif
  vf f = x - n;
  // Least-squares fit of the relative error on |f| <= 1 / 2, the first coefficient held at 1.
  vf p = f * 0.0013218672247603536f + 0.009671698324382305f;
  p = p * f + 0.05550893023610115f;
  p = p * f + 0.24022237956523895f;
  p = p * f + 0.6931468844413757f;
  p = p * f + 1.0f;
#if defined(__AVX512F__)
  // The mask, and not an exponent of less than -126: what underflows costs a microcode assist.
  __mmask16 normal = _mm512_cmp_ps_mask((__m512)given, (__m512)splat(-126.0f), _CMP_NLT_UQ);
  return (vf)_mm512_maskz_scalef_ps(normal, (__m512)p, (__m512)n);
#else
  vf value = p * as_float((as_bits(shifted) << 23) + 0x3f800000u);
  return given < -126.0f ? vf{} : value;
#endif
}

// 1 / (1 + e^-x)
CORE_INLINE vf sigmoid(vf x) { return 1.0f / (1.0f + exp(-x)); }

// To 5e-7 relative. 2 * sigmoid(2 x) - 1 loses what is left of small numbers; there the first terms of the series are as
// good as float32.
CORE_INLINE vf tanh(vf x) {
  vf size = as_float(as_bits(x) & 0x7fffffffu), square = x * x;
  vf p = square * -0.00886323552990220f + 0.02186948853615520f;
  p = p * square - 0.05396825396825397f;
  p = p * square + 0.13333333333333333f;
  p = p * square - 0.33333333333333333f;
  vf small = x + x * square * p;
  vf large = 1.0f - 2.0f / (1.0f + exp(size + size));
  large = x < 0.0f ? -large : large;
  vf near = size < 0.3f ? small : large;
  return x == x ? near : x;
}

// 1 - erf(z) for z >= 0, to 3e-7 relative: e^(-z^2) times a polynomial in 1 / (1 + 0.47 z).
CORE_INLINE vf erfc(vf z) {
  vf t = 1.0f / (z * 0.47f + 1.0f);
  vf p = t * -0.04691232368350029f + 0.26720064878463745f;
  p = p * t - 0.5635159015655518f;
  p = p * t + 0.4665226936340332f;
  p = p * t - 0.12493769079446793f;
  p = p * t + 0.24745145440101624f;
  p = p * t + 0.22249558568000793f;
  p = p * t + 0.2665906548500061f;
  p = p * t + 0.26510491967201233f;
  return p * t * exp(-z * z);
}

}  // namespace
}  // namespace core
