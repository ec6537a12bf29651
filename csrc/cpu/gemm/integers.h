// Integer helpers of the kernels. Included per instruction set; everything is in an unnamed namespace.
#pragma once

#include "common/vec.h"

namespace core {
namespace gemm {
namespace {

typedef int16_t vs __attribute__((vector_size(kVecBytes)));

// The bytes 0 and 2, 1 and 3 of every dword as two signed 16-bit integers.
CORE_INLINE vu even_bytes(vu value) {
  return reinterpret_cast<vu>((reinterpret_cast<vs>(value) << 8) >> 8);
}
CORE_INLINE vu odd_bytes(vu value) {
  return reinterpret_cast<vu>(reinterpret_cast<vs>(value) >> 8);
}

// The sum of the products of both signed 16-bit halves of every dword.
CORE_INLINE vi dot_pairs(vu a, vu b) {
#if defined(__AVX512BW__)
  return (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
  vi left = reinterpret_cast<vi>(a), right = reinterpret_cast<vi>(b);
  return ((left << 16) >> 16) * ((right << 16) >> 16) + (left >> 16) * (right >> 16);
#endif
}

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#define CORE_UNSIGNED_DOTS 1
// `sum` and, in every dword, the products of the four unsigned bytes of `a` and the four signed ones of `b`.
CORE_INLINE vi dot_bytes(vi sum, vu a, vu b) {
#if defined(__AVX512VNNI__)
  return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#else
  return (vi)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
#endif
}
#endif

CORE_INLINE vf magnitude(vf value) { return as_float(as_bits(value) & 0x7fffffffu); }

// The nearest integers, ties to even; `value` is within +-2^22.
CORE_INLINE vi nearest(vf value) {
#if defined(__AVX512F__)
  return (vi)_mm512_cvtps_epi32((__m512)value);
#else
  constexpr float round = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  return reinterpret_cast<vi>(as_bits(value + round)) - 0x4b400000;
#endif
}

CORE_INLINE int32_t sum_of(vi values) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_epi32((__m512i)values);
#else
  int32_t total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += values[lane];
  return total;
#endif
}

template <typename T>
CORE_INLINE vf load_upto(const T* from, int64_t count) {
  if (count >= kLanes) return load(from);
  return count > 0 ? load_part(from, count) : vf{};
}

// The largest magnitude of `count` values.
template <typename T>
CORE_INLINE float largest_of(const T* from, int64_t count) {
  vf most{};
  for (int64_t i = 0; i < count; i += kLanes) most = vec_max(magnitude(load_upto(from + i, count - i)), most);
  return max_of(most);
}

// The same divided by 127, or 1 if all are zero.
template <typename T>
CORE_INLINE float row_scale(const T* from, int64_t count) {
  float largest = largest_of(from, count);
  return largest > 0.0f ? largest / 127.0f : 1.0f;
}

// The largest magnitude of 32 values.
CORE_INLINE float largest_of_block(const float* from) { return largest_of(from, 32); }
CORE_INLINE float largest_of_block(const bf16* from) {
#if defined(__AVX512BW__)
  // Bits without the sign are in the order of the values; the instruction finds the least of eight.
  __m512i all = _mm512_and_si512(_mm512_loadu_si512(from), _mm512_set1_epi16(0x7fff));
  __m256i half = _mm256_max_epu16(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  __m128i most = _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  int least = _mm_cvtsi128_si32(_mm_minpos_epu16(_mm_xor_si128(most, _mm_set1_epi16(-1))));
  return to_float(bf16{static_cast<uint16_t>(~least)});
#else
  return largest_of(from, 32);
#endif
}

// `x / scale` as a division rounds it, `inverse` being 1 / scale. Dividing vectors takes several times as long.
CORE_INLINE vf divide(vf x, float scale, float inverse) {
#if defined(__FMA__)
  vf quotient = x * inverse;
  vf rest = x - quotient * scale;  // one fused operation, hence exact
  return quotient + rest * inverse;
#else
  (void)inverse;
  return x / scale;
#endif
}

// The scale of a row and what it takes to divide by it.
struct Divisor {
  float scale, inverse;
};

// The first lanes at `from`, of `count`, divided and rounded; zeros after them.
template <typename T>
CORE_INLINE vi quantize_lanes(const T* from, int64_t count, const Divisor& by) {
  return nearest(divide(load_upto(from, count), by.scale, by.inverse));
}

typedef int8_t Bytes __attribute__((vector_size(kLanes)));

CORE_INLINE void store_bytes(vi value, void* to) {
#if defined(__AVX512F__)
  _mm_storeu_si128(static_cast<__m128i*>(to), _mm512_cvtepi32_epi8((__m512i)value));
#else
  Bytes bytes = __builtin_convertvector(value, Bytes);
  std::memcpy(to, &bytes, kLanes);
#endif
}

}  // namespace
}  // namespace gemm
}  // namespace core
