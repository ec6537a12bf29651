// Copies of keys and values that lie token by token, in the form of `copies.h`: what attention without a cache reads.
// `dims` are the elements of a head, `head_dim` what the products compute with; those beyond become zeros.
#pragma once

#include "attention/copies.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// The elements d (float32), or d and d + 1 (bfloat16), of a head: one word of a copy.
template <typename S>
CORE_INLINE uint32_t word_of(const S* x, int64_t d, int64_t dims, float) {
  float value = d < dims ? to_float(x[d]) : 0.0f;
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
CORE_INLINE uint32_t word_of(const bf16* x, int64_t d, int64_t dims, bf16) {
  uint32_t low = d < dims ? x[d].bits : 0u, high = d + 1 < dims ? x[d + 1].bits : 0u;
  return low | high << 16;
}

#if defined(__AVX512F__) && defined(__AVX512BW__)
// Sixteen words from element d on.
CORE_INLINE __m512i words_of(const float* x, int64_t d, int64_t dims, float) {
  int64_t left = dims - d;
  __mmask16 there = left >= 16 ? 0xffff : left <= 0 ? 0 : static_cast<__mmask16>((1u << left) - 1);
  return (__m512i)_mm512_maskz_loadu_ps(there, x + d);
}
CORE_INLINE __m512i words_of(const bf16* x, int64_t d, int64_t dims, float) {
  int64_t left = dims - d;
  __mmask16 there = left >= 16 ? 0xffff : left <= 0 ? 0 : static_cast<__mmask16>((1u << left) - 1);
  return _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, x + d)), 16);
}
CORE_INLINE __m512i words_of(const bf16* x, int64_t d, int64_t dims, bf16) {
  int64_t left = dims - d;
  __mmask32 there = left >= 32 ? 0xffffffffu : left <= 0 ? 0 : static_cast<__mmask32>((1ull << left) - 1);
  return _mm512_maskz_loadu_epi16(there, x + d);
}

// Sixteen rows of sixteen words become sixteen columns, in four rounds that exchange ever larger parts.
CORE_INLINE void transpose(__m512i (&r)[16]) {
  __m512i t[16];
#define CORE_EACH(n) _Pragma("GCC unroll 16") for (int i = 0; i < n; ++i)
  CORE_EACH(8) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  CORE_EACH(4) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  CORE_EACH(4) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  CORE_EACH(8) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
#undef CORE_EACH
}

// Up to sixteen keys of a panel of `width`.
template <typename S, typename T>
void transpose_keys(const S* keys, int64_t stride, T* out, int64_t head_dim, int64_t dims, int64_t count,
                    int64_t width = kPanelKeys) {
  constexpr int64_t step = 16 * kPackOf<T>;
  for (int64_t d = 0; d < head_dim; d += step) {
    __m512i r[16];
    CORE_UNROLL
    for (int64_t k = 0; k < 16; ++k) r[k] = words_of(keys + (k < count ? k : count - 1) * stride, d, dims, T{});
    transpose(r);
    int64_t words = (head_dim - d) / kPackOf<T>;
    CORE_UNROLL
    for (int64_t w = 0; w < 16; ++w) {
      if (w < words) _mm512_storeu_si512(out + (d + w * kPackOf<T>) * width, r[w]);
    }
  }
}

// Turns `rows x columns` numbers: to[c][r] = from[r][c]. Places up to the next multiples of 16 are read and written.
inline void turn(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows, int64_t columns) {
  for (int64_t c = 0; c < columns; c += 16) {
    for (int64_t r = 0; r < rows; r += 16) {
      __m512i block[16];
      CORE_UNROLL
      for (int64_t i = 0; i < 16; ++i) block[i] = _mm512_loadu_si512(from + (r + i) * from_stride + c);
      transpose(block);
      CORE_UNROLL
      for (int64_t i = 0; i < 16; ++i) _mm512_storeu_si512(to + (c + i) * to_stride + r, block[i]);
    }
  }
}
#else
inline void turn(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows, int64_t columns) {
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) to[c * to_stride + r] = from[r * from_stride + c];
  }
}

template <typename S, typename T>
void transpose_keys(const S* keys, int64_t stride, T* out, int64_t head_dim, int64_t dims, int64_t count,
                    int64_t width = kPanelKeys) {
  for (int64_t d = 0; d < head_dim; d += kPackOf<T>) {
    char* to = reinterpret_cast<char*>(out + d * width);
    for (int64_t k = 0; k < count; ++k) {
      uint32_t word = word_of(keys + k * stride, d, dims, T{});
      std::memcpy(to + k * 4, &word, 4);
    }
  }
}
#endif

// `count` keys to the first places of a copy. Places up to the next multiple of 16 may hold anything.
template <typename S, typename T>
void copy_key_rows(const S* keys, int64_t stride, T* copy, int64_t head_dim, int64_t dims, int64_t count) {
  for (int64_t k = 0; k < count; k += 16) {
    T* out = copy + k / kPanelKeys * kPanelKeys * head_dim + k % kPanelKeys * kPackOf<T>;
    transpose_keys(keys + k * stride, stride, out, head_dim, dims, count - k < 16 ? count - k : 16);
  }
}

template <typename S>
void copy_value_rows(const S* values, int64_t stride, float* out, int64_t head_dim, int64_t dims, int64_t count) {
  for (int64_t t = 0; t < count; ++t, values += stride, out += head_dim) {
    int64_t d = 0;
    for (; d + kLanes <= dims; d += kLanes) store(out + d, load(values + d));
    for (; d < head_dim; ++d) out[d] = d < dims ? to_float(values[d]) : 0.0f;
  }
}

// In pairs of tokens; behind an odd one comes a zero.
inline void copy_value_rows(const bf16* values, int64_t stride, bf16* out, int64_t head_dim, int64_t dims,
                            int64_t count) {
  for (int64_t t = 0; t < count; t += 2, values += 2 * stride, out += 2 * head_dim) {
    const bf16* next = t + 1 < count ? values + stride : nullptr;
    int64_t d = 0;
    for (; next != nullptr && d + kLanes <= dims; d += kLanes) {
      vu low = __builtin_convertvector(*reinterpret_cast<const vh_mem*>(values + d), vu);
      vu high = __builtin_convertvector(*reinterpret_cast<const vh_mem*>(next + d), vu);
      store_pairs(out + d * 2, low | high << 16);
    }
    for (; d < head_dim; ++d) {
      out[d * 2] = d < dims ? values[d] : bf16{0};
      out[d * 2 + 1] = d < dims && next != nullptr ? next[d] : bf16{0};
    }
  }
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
