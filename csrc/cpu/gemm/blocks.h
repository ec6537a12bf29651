// Weights in GGUF's block formats, as packed for the kernels. Included per instruction set.
//
// Every format is 32 inputs a block, whose values are unsigned codes of 1 to 8 bits: weight = scale * (code - zero), or
// scale * code + minimum. Four codes of each of 16 channels make a line of 64 bytes, as in gemm.h; a block is 8 lines:
//
//   1 bit   1 line: bit g of a byte is half the code, 0 or 2, of the byte in line g.
//   2 bits  2 lines: bits 2g, 2g + 1 of a byte in the first are those of line g, in the second those of line 4 + g.
//   3 bits  the same and one more line: bit g of a byte is the third bit of the byte in line g.
//   8 bits  8 lines.
//   4 bits  4 lines: the low halves of their bytes are lines 0-3 and the high halves lines 4-7.
//   5 bits  these and one more line: bit g of a byte is the fifth bit of the byte in line g.
//   6 bits  these and two more lines: bits 2g, 2g + 1 of a byte in the first are those of line
//           g, in the second those of line 4 + g.
//
// Scales of a panel, after its codes, `h` a float16 and `b` a byte for each of 16 channels:
//
//   Q4_0 Q5_0 Q8_0  a block: h scale
//   Q2_0 Q1_0       2 or 4 blocks: h scale
//   Q4_1 Q5_1       a block: h scale, h minimum
//   Q4_64 Q4_128    2 or 4 blocks: h scale, h minimum
//   Q4_K Q5_K       8 blocks: h scale, h minimum, then 8 times b scale, b minimum (unsigned, to be multiplied)
//   Q3_K Q6_K       8 blocks: h scale, then 8 times b scale of inputs 0-15, b of inputs 16-31 (signed)
//   IQ4_NL          a block: h scale
//   IQ4_XS          8 blocks: h scale, then 8 times b scale (signed)
//   MXFP4           a block: b exponent of the scale, as float32 has it
//   NVFP4           a block: b scale of inputs 0-15, b of inputs 16-31 (e4m3, 256 times too small); at the end of a
//                   panel a float32 for each channel, by which results are multiplied
//
// Codes of these two are those of e2m1; twice the number that one stands for is an integer, -12 to 12. Those of IQ4_NL
// and IQ4_XS stand for integers from -127 to 113.
#pragma once

#include "common/vec.h"
#include "gemm/float8.h"
#include "gemm/kernel.h"

namespace core {
namespace gemm {
namespace {

constexpr int kVecs = 16 / kLanes;  // vectors of a line

enum class Scales { plain, minimum, nested, signed_bytes, halves, powers, floats };

// What codes stand for, as unsigned bytes that meet activations: themselves, or of four bits what a table has.
struct Itself {
  static constexpr bool is_table = false;
};
struct TwiceE2m1 {  // and 12
  static constexpr bool is_table = true;
  static constexpr uint8_t values[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
};
struct Iq4 {  // and 128
  static constexpr bool is_table = true;
  static constexpr uint8_t values[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
};

template <typename Table, int Bits>
constexpr int largest_code() {
  int largest = Bits == 1 ? 2 : (1 << Bits) - 1;
  if constexpr (Table::is_table) {
    largest = 0;
    for (int value : Table::values) largest = value > largest ? value : largest;
  }
  return largest;
}

template <core_gemm_format Format, int Bits, int Zero, Scales Kind, typename Table_ = Itself>
struct Blocks {
  typedef Table_ Table;
  static constexpr int bits = Bits, zero = Zero, largest = largest_code<Table, Bits>();
  static constexpr Scales kind = Kind;
  static constexpr bool has_minimum = Kind == Scales::minimum || Kind == Scales::nested;
  static constexpr bool halves = Kind == Scales::halves || Kind == Scales::floats;  // each has scales of its own
  static constexpr int64_t code_bytes = kStorage[Format].codes;
  static constexpr int64_t group = kStorage[Format].group;  // blocks sharing scales
  static constexpr int64_t scale_bytes = kStorage[Format].scales;
};

typedef Blocks<CORE_GEMM_Q4_0, 4, 8, Scales::plain> Q4_0;
typedef Blocks<CORE_GEMM_Q4_1, 4, 0, Scales::minimum> Q4_1;
typedef Blocks<CORE_GEMM_Q5_0, 5, 16, Scales::plain> Q5_0;
typedef Blocks<CORE_GEMM_Q5_1, 5, 0, Scales::minimum> Q5_1;
typedef Blocks<CORE_GEMM_Q8_0, 8, 128, Scales::plain> Q8_0;
typedef Blocks<CORE_GEMM_Q4_K, 4, 0, Scales::nested> Q4_K;
typedef Blocks<CORE_GEMM_Q5_K, 5, 0, Scales::nested> Q5_K;
typedef Blocks<CORE_GEMM_Q6_K, 6, 32, Scales::halves> Q6_K;
typedef Blocks<CORE_GEMM_Q4_64, 4, 0, Scales::minimum> Q4_64;
typedef Blocks<CORE_GEMM_Q4_128, 4, 0, Scales::minimum> Q4_128;
typedef Blocks<CORE_GEMM_MXFP4, 4, 12, Scales::powers, TwiceE2m1> Mxfp4;
typedef Blocks<CORE_GEMM_NVFP4, 4, 12, Scales::floats, TwiceE2m1> Nvfp4;
typedef Blocks<CORE_GEMM_Q1_0, 1, 1, Scales::plain> Q1_0;
typedef Blocks<CORE_GEMM_Q2_0, 2, 1, Scales::plain> Q2_0;
typedef Blocks<CORE_GEMM_IQ4_NL, 4, 128, Scales::plain, Iq4> Iq4Nl;
typedef Blocks<CORE_GEMM_IQ4_XS, 4, 128, Scales::signed_bytes, Iq4> Iq4Xs;
typedef Blocks<CORE_GEMM_Q3_K, 3, 4, Scales::halves> Q3_K;

// What `kernels` has for each block format, in their order.
#define CORE_BLOCK_FORMATS(kernel)                                                                             \
  {kernel<Q4_0>(), kernel<Q4_1>(), kernel<Q5_0>(), kernel<Q5_1>(), kernel<Q8_0>(), kernel<Q4_K>(),             \
   kernel<Q5_K>(), kernel<Q6_K>(), kernel<Q4_64>(), kernel<Q4_128>(),                                         \
   kernel<Mxfp4>(), kernel<Nvfp4>(), kernel<Q1_0>(), kernel<Q2_0>(), kernel<Iq4Nl>(), kernel<Iq4Xs>(),            \
   kernel<Q3_K>()}

CORE_INLINE vf load_halves(const char* from) {
#if defined(__AVX512F__)
  return (vf)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__)
  return (vf)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  // Shifted into place, a float16 is a float32 2^112 times too small; infinities need their exponent completed.
  vh half;
  std::memcpy(&half, from, sizeof half);
  vu wide = __builtin_convertvector(half, vu);
  vf value = as_float((wide & 0x7fffu) << 13) * 5.192296858534828e33f;
  vu bits = as_bits(value);
  bits = (wide & 0x7c00u) == 0x7c00u ? bits | 0x7f800000u : bits;
  return as_float(bits | ((wide & 0x8000u) << 16));
#endif
}

// By intrinsics where there are some: gcc 12 widens bytes in many steps.
template <typename Byte>
CORE_INLINE vf load_bytes(const char* from) {
#if defined(__AVX512F__)
  __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return (vf)_mm512_cvtepi32_ps(Byte(-1) < 0 ? _mm512_cvtepi8_epi32(some) : _mm512_cvtepu8_epi32(some));
#elif defined(__AVX2__)
  __m128i some = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return (vf)_mm256_cvtepi32_ps(Byte(-1) < 0 ? _mm256_cvtepi8_epi32(some) : _mm256_cvtepu8_epi32(some));
#else
  typedef Byte Bytes __attribute__((vector_size(kLanes)));
  Bytes bytes;
  std::memcpy(&bytes, from, kLanes);
  return __builtin_convertvector(__builtin_convertvector(bytes, vi), vf);
#endif
}

// Bytes in the low ends of dwords.
CORE_INLINE vu load_exponents(const char* from) {
#if defined(__AVX512F__)
  return (vu)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#elif defined(__AVX2__)
  return (vu)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
#else
  typedef uint8_t Bytes __attribute__((vector_size(kLanes)));
  Bytes bytes;
  std::memcpy(&bytes, from, kLanes);
  return __builtin_convertvector(bytes, vu);
#endif
}

// 256ths of codes of e4m3 without a sign. Shifted by 7 bits they are float16, whose exponents count from 8 less.
CORE_INLINE vf load_e4m3(const char* from) {
#if defined(__AVX512F__)
  __m256i codes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  return (vf)_mm512_cvtph_ps(_mm256_slli_epi16(codes, 7));
#elif defined(__F16C__)
  __m128i codes = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  return (vf)_mm256_cvtph_ps(_mm_slli_epi16(codes, 7));
#else
  return widen_top<E4m3, false>(load_exponents(from) << 24);
#endif
}

// What every byte, 0 to 15, stands for.
template <typename Table>
CORE_INLINE vu values_of(vu codes) {
#if defined(__AVX512BW__)
  __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(Table::values));
  return (vu)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), (__m512i)codes);
#elif defined(__AVX2__)
  __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(Table::values));
  return (vu)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), (__m256i)codes);
#elif defined(__aarch64__)
  return (vu)vqtbl1q_u8(vld1q_u8(Table::values), (uint8x16_t)codes);
#else
  uint8_t bytes[kVecBytes];
  std::memcpy(bytes, &codes, kVecBytes);
  for (int i = 0; i < kVecBytes; ++i) bytes[i] = Table::values[bytes[i]];
  std::memcpy(&codes, bytes, kVecBytes);
  return codes;
#endif
}

// Scales of one block for the channels of vector `v`: of both halves, and what is added per input.
struct BlockScale {
  vf low, high, minimum;
};

// Scale and minimum that a group of blocks shares, for the channels of vector `v`.
template <typename F>
CORE_INLINE BlockScale group_scale(const char* scales, int v) {
  if (F::kind == Scales::powers) {
    vf scale = as_float(load_exponents(scales + v * kLanes) << 23);
    return {scale, scale, vf{}};
  }
  if (F::kind == Scales::floats) {
    const char* two = scales + v * kLanes;
    return {load_e4m3(two), load_e4m3(two + 16), vf{}};
  }
  const char* at = scales + v * kLanes * 2;
  vf scale = load_halves(at);
  return {scale, scale, F::has_minimum ? load_halves(at + 32) : vf{}};
}

template <typename F>
CORE_INLINE BlockScale block_scale(const BlockScale& group, const char* scales, int64_t block, int v) {
  if (F::kind == Scales::nested) {
    const char* at = scales + 64 + block * 32 + v * kLanes;
    vf scale = group.low * load_bytes<uint8_t>(at);
    return {scale, scale, -(group.minimum * load_bytes<uint8_t>(at + 16))};
  }
  if (F::kind == Scales::signed_bytes) {
    vf scale = group.low * load_bytes<int8_t>(scales + 32 + block * 16 + v * kLanes);
    return {scale, scale, vf{}};
  }
  if (F::kind == Scales::halves) {
    const char* at = scales + 32 + block * 32 + v * kLanes;
    return {group.low * load_bytes<int8_t>(at), group.low * load_bytes<int8_t>(at + 16), vf{}};
  }
  return group;
}

// Line `g` of a block, vector `v` of it: four codes a dword.
template <typename F>
CORE_INLINE vu code_line(const char* codes, int g, int v) {
  const char* at = codes + v * kVecBytes;
  if (F::bits == 8) return load_bits(at + g * 64);
  if (F::bits == 1) return (g == 0 ? load_bits(at) << 1 : load_bits(at) >> ((g - 1) & 31)) & 0x02020202u;
  if (F::bits <= 3) {
    vu code = (load_bits(at + g / 4 * 64) >> (g % 4 * 2)) & 0x03030303u;
    if (F::bits == 2) return code;
    vu third = load_bits(at + 128);
    return code | ((g < 2 ? third << ((2 - g) & 31) : third >> ((g - 2) & 31)) & 0x04040404u);
  }
  vu both = load_bits(at + g % 4 * 64);
  vu code = (g < 4 ? both : both >> 4) & 0x0f0f0f0fu;
  if constexpr (F::Table::is_table) return values_of<typename F::Table>(code);
  if (F::bits == 5) {
    vu fifth = load_bits(at + 256);
    return code | ((g < 4 ? fifth << ((4 - g) & 31) : fifth >> ((g - 4) & 31)) & 0x10101010u);
  }
  if (F::bits == 6) {
    vu more = load_bits(at + 256 + g / 4 * 64);
    int low = g % 4 * 2;
    return code | ((low < 4 ? more << (4 - low) : more >> (low - 4)) & 0x30303030u);
  }
  return code;
}

}  // namespace
}  // namespace gemm
}  // namespace core
