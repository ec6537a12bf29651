// Integer helpers of the kernels. Included per instruction set; everything is in an unnamed namespace.
#pragma once

#include "common/vec.h"

namespace core {
namespace gemm {
namespace {

// The bytes 0 and 2, 1 and 3 of every dword as two signed 16-bit integers.
CORE_INLINE vu even_bytes(vu value) {
  typedef int16_t vs __attribute__((vector_size(kVecBytes)));
  return reinterpret_cast<vu>((reinterpret_cast<vs>(value) << 8) >> 8);
}
CORE_INLINE vu odd_bytes(vu value) {
  typedef int16_t vs __attribute__((vector_size(kVecBytes)));
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

CORE_INLINE vf magnitude(vf value) { return as_float(as_bits(value) & 0x7fffffffu); }

// The nearest integers, ties to even; `value` is within +-2^22.
CORE_INLINE vi nearest(vf value) {
  constexpr float round = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  return reinterpret_cast<vi>(as_bits(value + round)) - 0x4b400000;
}

template <typename T>
CORE_INLINE vf load_upto(const T* from, int64_t count) {
  if (count >= kLanes) return load(from);
  return count > 0 ? load_part(from, count) : vf{};
}

// The largest magnitude of `count` values divided by 127, or 1 if all are zero.
template <typename T>
CORE_INLINE float row_scale(const T* from, int64_t count) {
  vf most{};
  for (int64_t i = 0; i < count; i += kLanes) most = vec_max(magnitude(load_upto(from + i, count - i)), most);
  float largest = max_of(most);
  return largest > 0.0f ? largest / 127.0f : 1.0f;
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
  Bytes bytes = __builtin_convertvector(value, Bytes);
  std::memcpy(to, &bytes, kLanes);
}

}  // namespace
}  // namespace gemm
}  // namespace core
