// float8 codes (e4m3) widened in registers. Included per instruction set; everything is in an unnamed namespace.
//
// A line has four inputs of 16 channels. The bytes of a channel's dword are inputs 0, 2, 1 and 3, so that the low bytes
// of its words are inputs 0 and 1, the high ones inputs 2 and 3: each time a pair of bfloat16.
//
// A code is a sign, 4 bits of exponent and 3 of mantissa. With 112 added to the exponent it is a wider format's number, a
// 256th of its value; 112 has no bit in common with the four, hence "or". (Its bits alone, and a large scale, would do for
// multiplications that keep numbers below the least normal one; those of bfloat16 take them for zero.) Codes without an
// exponent, zero and multiples of 2^-9 below 2^-6, are rare: a line without them takes the short way.
#pragma once

#include "common/vec.h"
#include "gemm/kernel.h"

namespace core {
namespace gemm {
namespace {

constexpr int kInputAt[4] = {0, 2, 1, 3};  // input of each byte of a dword

// Whether no code is without an exponent; false where that is not looked at.
CORE_INLINE bool all_normal(vu codes) {
#if defined(__AVX512BW__)
  return _mm512_testn_epi8_mask((__m512i)codes, _mm512_set1_epi8(0x78)) == 0;
#elif defined(__AVX2__)
  __m256i exponents = _mm256_and_si256((__m256i)codes, _mm256_set1_epi8(0x78));
  return _mm256_movemask_epi8(_mm256_cmpeq_epi8(exponents, _mm256_setzero_si256())) == 0;
#else
  (void)codes;
  return false;
#endif
}

// 256ths of the values of the codes in the top bytes of the dwords. `Normal`: as `all_normal` says.
template <bool Normal>
CORE_INLINE vf widen_e4m3(vu top) {
  vu code = reinterpret_cast<vu>(reinterpret_cast<vi>(top) >> 4) & 0x87f00000u;
  vu value = code | 0x38000000u;
  if (Normal) return as_float(value);
  vu size = code & 0x07f00000u;
  vf small = as_float(size | 0x38800000u) - 6.103515625e-05f;  // 2^-14 * (1 + mantissa), less 2^-14
  value = size < 0x00800000u ? as_bits(small) | (code & 0x80000000u) : value;
  return as_float(value);
}

// Byte `j` of every dword.
template <bool Normal>
CORE_INLINE vf widen_byte(vu codes, int j) {
  return widen_e4m3<Normal>(j == 3 ? codes : codes << (24 - 8 * j));
}

#if defined(__AVX512BF16__)
// A line as two of bfloat16: inputs 0 and 1, inputs 2 and 3.
struct PairsOf {
  __m512i first, second;
};

CORE_INLINE PairsOf widen_pairs(vu codes) {
  const __m512i sign = _mm512_set1_epi16(static_cast<int16_t>(0x8000)), rest = _mm512_set1_epi16(0x07f0);
  const __m512i exponent = _mm512_set1_epi16(0x3800);
  constexpr int kAndOr = 0xea, kOrAnd = 0xf8;  // (a & b) | c, a | (b & c)
  __m512i w = (__m512i)codes, low = _mm512_slli_epi16(w, 8);
  __m512i first = _mm512_ternarylogic_epi32(_mm512_srli_epi16(low, 4), rest, exponent, kAndOr);
  __m512i second = _mm512_ternarylogic_epi32(_mm512_srli_epi16(w, 4), rest, exponent, kAndOr);
  if (!all_normal(codes)) {
    // Multiples of 2^-17: the five low bits of a code without an exponent are its mantissa.
    const __m512i small = _mm512_castsi128_si512(
        _mm_set_epi16(0x3860, 0x3840, 0x3820, 0x3800, 0x37c0, 0x3780, 0x3700, 0));
    const __m512i any = _mm512_set1_epi16(0x7800);
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
