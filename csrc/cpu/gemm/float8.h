// float8 codes (e4m3, e5m2) widened in registers. Included per instruction set; everything is in an unnamed namespace.
//
// A line has four inputs of 16 channels. The bytes of a channel's dword are inputs 0, 2, 1 and 3, so that the low bytes
// of its words are inputs 0 and 1, the high ones inputs 2 and 3: each time a pair of bfloat16.
//
// A code is a sign, an exponent and a mantissa. With something added to the exponent it is a wider format's number, a
// small part of its value: the more, the smaller that is, and what is added here has no bit in common with the
// exponent's, hence "or". (Its bits alone, and a large scale, would do for multiplications that keep numbers below the
// least normal one; those of bfloat16 take them for zero.) Codes without an exponent, zero and the few multiples of the
// smallest number below the least normal one, are rare: a line without them takes the short way.
#pragma once

#include "common/vec.h"
#include "gemm/kernel.h"

namespace core {
namespace gemm {
namespace {

constexpr int kInputAt[4] = {0, 2, 1, 3};  // input of each byte of a dword

// 4 bits of exponent, 3 of mantissa, in 256ths of the values.
struct E4m3 {
  static constexpr int shift = 4;                // brings a code from the top of a wider number under its exponent
  static constexpr uint32_t rest = 0x07f00000;   // the code's exponent and mantissa, of float32
  static constexpr uint32_t added = 0x38000000;  // to the exponent: 112
  static constexpr uint32_t least = 0x38800000;  // the least normal number
  static constexpr int exponent = 0x78;          // of a code
  // Numbers without an exponent, of bfloat16.
  alignas(16) static constexpr uint16_t small[8] = {0, 0x3700, 0x3780, 0x37c0, 0x3800, 0x3820, 0x3840, 0x3860};
};

// 5 bits of exponent, 2 of mantissa, in 65536ths of the values.
struct E5m2 {
  static constexpr int shift = 3;
  static constexpr uint32_t rest = 0x0fe00000;
  static constexpr uint32_t added = 0x30000000;  // 96
  static constexpr uint32_t least = 0x30800000;
  static constexpr int exponent = 0x7c;
  alignas(16) static constexpr uint16_t small[8] = {0, 0x2f80, 0x3000, 0x3040};
};

// Whether no code is without an exponent; false where that is not looked at.
template <typename C>
CORE_INLINE bool all_normal(vu codes) {
#if defined(__AVX512BW__)
  return _mm512_testn_epi8_mask((__m512i)codes, _mm512_set1_epi8(C::exponent)) == 0;
#elif defined(__AVX2__)
  __m256i exponents = _mm256_and_si256((__m256i)codes, _mm256_set1_epi8(C::exponent));
  return _mm256_movemask_epi8(_mm256_cmpeq_epi8(exponents, _mm256_setzero_si256())) == 0;
#else
  (void)codes;
  return false;
#endif
}

// The codes in the top bytes of the dwords. `Normal`: as `all_normal` says.
template <typename C, bool Normal>
CORE_INLINE vf widen_top(vu top) {
  vu code = reinterpret_cast<vu>(reinterpret_cast<vi>(top) >> C::shift) & (C::rest | 0x80000000u);
  vu value = code | C::added;
  if (Normal) return as_float(value);
  vu size = code & C::rest;
  vf small = as_float(size | C::least) - as_float(splat_bits(C::least));  // least * (1 + mantissa), less `least`
  value = size < 0x00800000u ? as_bits(small) | (code & 0x80000000u) : value;
  return as_float(value);
}

// Byte `j` of every dword.
template <typename C, bool Normal>
CORE_INLINE vf widen_byte(vu codes, int j) {
  return widen_top<C, Normal>(j == 3 ? codes : codes << (24 - 8 * j));
}

// One code.
template <typename C>
inline float widen_code(uint8_t code) {
  uint32_t size = static_cast<uint32_t>(code & 0x7f) << (24 - C::shift), least = C::least;
  uint32_t bits = size | (size < 0x00800000u ? C::least : C::added);
  float value, less;
  std::memcpy(&value, &bits, 4);
  std::memcpy(&less, &least, 4);
  if (size < 0x00800000u) value -= less;
  return (code & 0x80) != 0 ? -value : value;
}

#if defined(__AVX512BF16__)
// A line as two of bfloat16: inputs 0 and 1, inputs 2 and 3.
struct PairsOf {
  __m512i first, second;
};

template <typename C>
CORE_INLINE PairsOf widen_pairs(vu codes) {
  const __m512i sign = _mm512_set1_epi16(static_cast<int16_t>(0x8000)), rest = _mm512_set1_epi16(C::rest >> 16);
  const __m512i added = _mm512_set1_epi16(C::added >> 16);
  constexpr int kAndOr = 0xea, kOrAnd = 0xf8;  // (a & b) | c, a | (b & c)
  __m512i w = (__m512i)codes, low = _mm512_slli_epi16(w, 8);
  __m512i first = _mm512_ternarylogic_epi32(_mm512_srli_epi16(low, C::shift), rest, added, kAndOr);
  __m512i second = _mm512_ternarylogic_epi32(_mm512_srli_epi16(w, C::shift), rest, added, kAndOr);
  if (!all_normal<C>(codes)) {
    // The five low bits of a code without an exponent are its mantissa.
    const __m512i small = _mm512_castsi128_si512(_mm_load_si128(reinterpret_cast<const __m128i*>(C::small)));
    const __m512i any = _mm512_set1_epi16(C::exponent << 8);
    __m512i high = _mm512_srli_epi16(w, 8);
    first = _mm512_mask_permutexvar_epi16(first, _mm512_testn_epi16_mask(low, any), w, small);
    second = _mm512_mask_permutexvar_epi16(second, _mm512_testn_epi16_mask(w, any), high, small);
  }
  return {_mm512_ternarylogic_epi32(first, low, sign, kOrAnd), _mm512_ternarylogic_epi32(second, w, sign, kOrAnd)};
}
#endif

}  // namespace
}  // namespace gemm
}  // namespace core
