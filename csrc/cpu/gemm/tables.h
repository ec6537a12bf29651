// Codes of four bits that stand for numbers of a table, bitsandbytes' nf4 and fp4. Included per instruction set;
// everything is in an unnamed namespace.
//
// A line has eight inputs of 16 channels. The halves of a channel's bytes are, from the lowest, inputs 0, 2, 4, 6, 1, 3, 5
// and 7, so that the same shift brings both inputs of a pair to the low ends of a dword and of its upper word.
#pragma once

#include "common/vec.h"

namespace core {
namespace gemm {
namespace {

constexpr int kInputOf[8] = {0, 2, 4, 6, 1, 3, 5, 7};  // input of each four bits of a dword

// Quantiles of the normal distribution, as published with QLoRA.
struct Nf4 {
  alignas(64) static constexpr float values[16] = {
      -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,
      -0.18477343022823334f, -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f,
      0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f};
};

// Two bits of exponent and one of mantissa, as the library has them: twelfths, and a 192nd.
struct Fp4 {
  alignas(64) static constexpr float values[16] = {
      0.0f, 0.0052083333f, 0.6666666667f, 1.0f, 0.3333333333f, 0.5f, 0.1666666667f, 0.25f,
      -0.0f, -0.0052083333f, -0.6666666667f, -1.0f, -0.3333333333f, -0.5f, -0.1666666667f, -0.25f};
};

// The numbers of the codes in bits `4 * j` to `4 * j + 3` of the dwords.
template <typename Table>
CORE_INLINE vf table_values(vu codes, int j) {
  const float* values = Table::values;
#if defined(__AVX512F__)
  return (vf)_mm512_permutexvar_ps((__m512i)(codes >> (4 * j)), _mm512_load_ps(values));
#elif defined(__AVX2__)
  // Either half of the table by three bits; the fourth, as a sign, says which is meant.
  __m256i index = (__m256i)(codes >> (4 * j));
  __m256 low = _mm256_permutevar8x32_ps(_mm256_load_ps(values), index);
  __m256 high = _mm256_permutevar8x32_ps(_mm256_load_ps(values + 8), index);
  return (vf)_mm256_blendv_ps(low, high, (__m256)(codes << (28 - 4 * j)));
#elif defined(__aarch64__)
  // Four bytes of the table for each dword.
  auto bytes = reinterpret_cast<const uint8_t*>(values);
  uint8x16x4_t table = {{vld1q_u8(bytes), vld1q_u8(bytes + 16), vld1q_u8(bytes + 32), vld1q_u8(bytes + 48)}};
  vu index = ((codes >> (4 * j)) & 15u) * 0x04040404u + 0x03020100u;
  return (vf)vqtbl4q_u8(table, (uint8x16_t)index);
#else
  vf result{};
  for (int lane = 0; lane < kLanes; ++lane) result[lane] = values[codes[lane] >> (4 * j) & 15u];
  return result;
#endif
}

}  // namespace
}  // namespace gemm
}  // namespace core
