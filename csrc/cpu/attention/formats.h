// What the elements of a cache may be besides float32 and bfloat16: widened when they are read, rounded when they are
// stored. Everything is in an unnamed namespace (see csrc/README.md).
#pragma once

#include <type_traits>

#include "common/vec.h"

namespace core {
namespace {

struct f16 {
  uint16_t bits;
};
// 4 bits of exponent, 3 of mantissa: up to 448, no infinity, 0x7f is NaN.
struct e4m3 {
  uint8_t bits;
};
// The upper half of a float16: up to 57344.
struct e5m2 {
  uint8_t bits;
};
// An integer of -127 .. 127; the token's scale lies behind the elements of its kv head.
struct i8 {
  int8_t value;
};

typedef int8_t vb __attribute__((vector_size(kLanes)));
typedef int8_t vb_mem __attribute__((vector_size(kLanes), aligned(1), may_alias));
typedef uint8_t vub __attribute__((vector_size(kLanes)));
typedef uint8_t vub_mem __attribute__((vector_size(kLanes), aligned(1), may_alias));
typedef int16_t vsh __attribute__((vector_size(kVecBytes / 2)));
typedef int16_t vsh_mem __attribute__((vector_size(kVecBytes / 2), aligned(1), may_alias));

CORE_INLINE vf widen_f16(vh halves) {
#if defined(__AVX512F__)
  return (vf)_mm512_cvtph_ps((__m256i)halves);
#elif defined(__AVX2__)
  return (vf)_mm256_cvtph_ps((__m128i)halves);
#elif defined(__aarch64__)
  return (vf)vcvt_f32_f16(vreinterpret_f16_u16((uint16x4_t)halves));
#else
  vu bits = __builtin_convertvector(halves, vu);
  vu size = bits & 0x7fffu;
  vf value = as_float(size << 13) * 0x1p112f;
  vu special = as_bits(value) | 0x7f800000u;
  vu found = size >= 0x7c00u ? special : as_bits(value);
  return as_float(found | (bits & 0x8000u) << 16);
#endif
}

CORE_INLINE vf load(const f16* p) { return widen_f16(*reinterpret_cast<const vh_mem*>(p)); }

CORE_INLINE vf load(const e5m2* p) {
  vh bits = __builtin_convertvector(*reinterpret_cast<const vub_mem*>(p), vh);
  return widen_f16(bits << 8);
}

// The value divided by 256: a float16 of the same bits has an exponent 8 lower, and whoever asks multiplies later.
CORE_INLINE vf load(const e4m3* p) {
#if defined(__AVX512F__)
  vsh extended = (vsh)_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__AVX2__)
  vsh extended = (vsh)_mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  vsh extended = __builtin_convertvector(*reinterpret_cast<const vb_mem*>(p), vsh);
#endif
  vh moved = (vh)(extended << 7) & static_cast<uint16_t>(0xbf80);  // the sign twice: its copy falls to the mask
  vh nan = (vh)((moved & static_cast<uint16_t>(0x3f80)) == static_cast<uint16_t>(0x3f80));
  return widen_f16(moved | (nan & static_cast<uint16_t>(0x7e00)));
}

CORE_INLINE vf load(const i8* p) {
#if defined(__AVX512F__)
  return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  return __builtin_convertvector(__builtin_convertvector(*reinterpret_cast<const vb_mem*>(p), vi), vf);
#endif
}

// Elements that lie together in a cache, or in a copy of it: dimensions of a key, tokens of a value.
template <typename T>
constexpr int64_t kPackOf = std::is_same<T, bf16>::value || std::is_same<T, i8>::value ? 2 : 1;

// The first elements of `kLanes` pairs, and the second ones.
struct Pairs {
  vf first, second;
};

CORE_INLINE Pairs load_pairs(const bf16* p) {
  vu pairs = load_bits(p);
  return {as_float(pairs << 16), as_float(pairs & 0xffff0000u)};
}

CORE_INLINE Pairs load_pairs(const i8* p) {
#if defined(__AVX512F__)
  vi pairs = (vi)_mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__AVX2__)
  vi pairs = (vi)_mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  vi pairs = __builtin_convertvector(*reinterpret_cast<const vsh_mem*>(p), vi);
#endif
  return {__builtin_convertvector((vi)((vu)pairs << 24) >> 24, vf), __builtin_convertvector(pairs >> 8, vf)};
}

// What is known of a format: `kUnit` times what `load` gives is the value.
template <typename S>
struct Format {
  static constexpr float kUnit = 1.0f;
  static constexpr bool kScaled = false;
};
template <>
struct Format<e4m3> {
  static constexpr float kUnit = 256.0f;
  static constexpr bool kScaled = false;
};
template <>
struct Format<i8> {
  static constexpr float kUnit = 1.0f;
  static constexpr bool kScaled = true;
};

// Elements of the keys, or the values, of one kv head in a block.
template <typename S>
constexpr int64_t head_elements(int64_t block_size, int64_t head_dim) {
  return block_size * (head_dim + (Format<S>::kScaled ? static_cast<int64_t>(sizeof(float)) : 0));
}

// The scales of one kv head in a block, one float a token.
inline const float* scales_of(const i8* head, int64_t block_size, int64_t head_dim) {
  return reinterpret_cast<const float*>(head + block_size * head_dim);
}

// Rounds to the nearest value with this many bits, ties to even; what is too large becomes the largest finite value,
// a NaN the code `nan`. `largest` are the float32 bits of that value.
template <int Exponent, int Mantissa>
CORE_INLINE vu round_to(vf value, uint32_t largest, uint32_t nan) {
  constexpr uint32_t bias = (1u << (Exponent - 1)) - 1, drop = 23 - Mantissa;
  constexpr float unit = static_cast<float>(1u << (bias - 1)) * static_cast<float>(1u << Mantissa);
  vu bits = as_bits(value), size = bits & 0x7fffffffu;
  vu bounded = size > largest ? splat_bits(largest) : size;
  vu rounded = bounded + ((1u << (drop - 1)) - 1) + ((bounded >> drop) & 1u);
  vu normal = (rounded >> drop) - ((127 - bias) << Mantissa);
  vu tiny = as_bits(as_float(bounded) * unit + 12582912.0f) - 0x4b400000u;  // multiples of the smallest value
  vu code = bounded < ((128 - bias) << 23) ? tiny : normal;
  code = size > 0x7f800000u ? splat_bits(nan) : code;
  return code | (bits >> 31) << (Exponent + Mantissa);
}

CORE_INLINE void narrow(f16* p, vf value) {
  *reinterpret_cast<vh_mem*>(p) = __builtin_convertvector((round_to<5, 10>(value, 0x477fe000u, 0x7e00u)), vh);
}
CORE_INLINE void narrow(e5m2* p, vf value) {
  *reinterpret_cast<vub_mem*>(p) = __builtin_convertvector((round_to<5, 2>(value, 0x47600000u, 0x7fu)), vub);
}
CORE_INLINE void narrow(e4m3* p, vf value) {
  *reinterpret_cast<vub_mem*>(p) = __builtin_convertvector((round_to<4, 3>(value, 0x43e00000u, 0x7fu)), vub);
}
CORE_INLINE void narrow(i8* p, vf value) {
  vu whole = as_bits(value + 12582912.0f);  // the integer in the low bits
  *reinterpret_cast<vub_mem*>(p) = __builtin_convertvector(whole, vub);
}
CORE_INLINE void narrow(float* p, vf value) { store(p, value); }
CORE_INLINE void narrow(bf16* p, vf value) { store(p, value); }

// The scale of a row: its largest value becomes 127. A row that is not finite gets NaN, so that its reader sees it.
template <typename T>
inline float scale_of(const T* x, int64_t count) {
  vf best = {}, wrong = {};
  for (int64_t i = 0; i < count; i += kLanes) {
    vf value = load(x + i);
    best = vec_max(as_float(as_bits(value) & 0x7fffffffu), best);
    wrong += value * 0.0f;
  }
  return max_of(best) / 127.0f + sum(wrong);
}

// Rounds a row of `count` elements, a multiple of 16, to the format: divided by its own scale, which is returned, or,
// in a format without, by `given`.
template <typename S, typename T>
inline float narrow_row(const T* x, S* out, int64_t count, float given) {
  float scale = Format<S>::kScaled ? scale_of(x, count) : given;
  float divisor = scale != 0.0f ? scale : 1.0f;
  bool divides = Format<S>::kScaled || given != 1.0f;
  for (int64_t i = 0; i < count; i += kLanes) {
    vf value = load(x + i);
    narrow(out + i, divides ? value / divisor : value);
  }
  return scale;
}

}  // namespace
}  // namespace core
