// How a line of a panel, 64 bytes, meets rows of activations in floating point. Included per instruction set; everything is
// in an unnamed namespace.
//
// A format has `inputs` of a line, the type `X` of activations, the largest tile `rows` by `panels`, and `line`, which adds
// the products of one line and M rows to their sums.
#pragma once

#include "gemm/float8.h"
#include "gemm/kernel.h"
#include "gemm/tables.h"

namespace core {
namespace gemm {
namespace {

constexpr int kVecs = 16 / kLanes;  // vectors of a line

#if defined(__AVX512F__)
constexpr int kRows = 6, kWide = 4;
#elif defined(__AVX2__) || defined(__aarch64__)
constexpr int kRows = 6, kWide = 1;
#else
constexpr int kRows = 2, kWide = 1;
#endif

// float32: a line is one input.
struct F32 {
  typedef float X;
  static constexpr int inputs = 1, rows = kRows, panels = kWide;
  static constexpr bool round = false;
  static constexpr float scale = 1.0f;
  template <int M>
  CORE_INLINE static void line(vf (*acc)[kVecs], int64_t next, const char* w, const char* x, int64_t row_bytes) {
    for (int v = 0; v < kVecs; ++v) {
      vf weight = load(reinterpret_cast<const float*>(w) + v * kLanes);
      for (int i = 0; i < M; ++i) acc[i * next][v] += weight * *reinterpret_cast<const float*>(x + i * row_bytes);
    }
  }
};

// bfloat16 widened to float32: a line is two inputs, the first in the low halves.
struct WideBf16 {
  typedef float X;
  static constexpr int inputs = 2, rows = kRows, panels = kWide;
  static constexpr bool round = true;
  static constexpr float scale = 1.0f;
  template <int M>
  CORE_INLINE static void line(vf (*acc)[kVecs], int64_t next, const char* w, const char* x, int64_t row_bytes) {
    for (int v = 0; v < kVecs; ++v) {
      vu both = load_bits(w + v * kVecBytes);
      vf even = as_float(both << 16), odd = as_float(both & 0xffff0000u);
      for (int i = 0; i < M; ++i) {
        const float* pair = reinterpret_cast<const float*>(x + i * row_bytes);
        acc[i * next][v] += even * pair[0];
        acc[i * next][v] += odd * pair[1];
      }
    }
  }
};

// int8 widened to float32: a line is four inputs. Each byte is moved to the top of its dword, which makes it 2^24 times
// too large; the result is divided by that.
struct WideInt8 {
  typedef float X;
  static constexpr int inputs = 4, rows = kRows, panels = kWide > 2 ? 2 : kWide;
  static constexpr bool round = false;
  static constexpr float scale = 1.0f / 16777216.0f;
  template <int M>
  CORE_INLINE static void line(vf (*acc)[kVecs], int64_t next, const char* w, const char* x, int64_t row_bytes) {
    for (int v = 0; v < kVecs; ++v) {
      vu all = load_bits(w + v * kVecBytes);
      for (int j = 0; j < 4; ++j) {
        vu top = j == 3 ? all & 0xff000000u : (all << (24 - 8 * j)) & 0xff000000u;
        vf weight = __builtin_convertvector(reinterpret_cast<vi>(top), vf);
        for (int i = 0; i < M; ++i) acc[i * next][v] += weight * reinterpret_cast<const float*>(x + i * row_bytes)[j];
      }
    }
  }
};

// float8 widened to float32: a line is four inputs.
template <typename C>
struct WideFloat8 {
  typedef float X;
  static constexpr int inputs = 4, rows = kRows, panels = kWide;
  static constexpr bool round = false;
  static constexpr float scale = 1.0f;
  template <int M>
  CORE_INLINE static void line(vf (*acc)[kVecs], int64_t next, const char* w, const char* x, int64_t row_bytes) {
    for (int v = 0; v < kVecs; ++v) {
      vu codes = load_bits(w + v * kVecBytes);
      if (all_normal<C>(codes)) {
        add<true, M>(acc, next, v, codes, x, row_bytes);
      } else {
        add<false, M>(acc, next, v, codes, x, row_bytes);
      }
    }
  }
  template <bool Normal, int M>
  CORE_INLINE static void add(vf (*acc)[kVecs], int64_t next, int v, vu codes, const char* x, int64_t row_bytes) {
    for (int j = 0; j < 4; ++j) {
      vf weight = widen_byte<C, Normal>(codes, j);
      for (int i = 0; i < M; ++i) {
        acc[i * next][v] += weight * reinterpret_cast<const float*>(x + i * row_bytes)[kInputAt[j]];
      }
    }
  }
};

// Four bits by a table: a line is eight inputs. The table, and codes while they are looked up, take registers, too.
template <typename Table>
struct WideTable {
  typedef float X;
  static constexpr int inputs = 8, rows = kVecs > 1 && kRows > 4 ? 4 : kRows, panels = kWide;
  static constexpr bool round = false;
  static constexpr float scale = 1.0f;
  template <int M>
  CORE_INLINE static void line(vf (*acc)[kVecs], int64_t next, const char* w, const char* x, int64_t row_bytes) {
    for (int v = 0; v < kVecs; ++v) {
      vu codes = load_bits(w + v * kVecBytes);
      CORE_UNROLL
      for (int j = 0; j < 8; ++j) {
        vf weight = table_values<Table>(codes, j);
        for (int i = 0; i < M; ++i) {
          acc[i * next][v] += weight * reinterpret_cast<const float*>(x + i * row_bytes)[kInputOf[j]];
        }
      }
    }
  }
};

#if defined(__AVX512BF16__)
CORE_INLINE void add_pairs(vf& acc, __m512bh weights, const char* x) {
  int32_t pair;
  std::memcpy(&pair, x, 4);
  acc = (vf)_mm512_dpbf16_ps((__m512)acc, (__m512bh)_mm512_set1_epi32(pair), weights);
}

// bfloat16 by the instruction for it.
struct Bf16 {
  typedef bf16 X;
  static constexpr int inputs = 2, rows = kRows, panels = kWide;
  static constexpr bool round = false;
  static constexpr float scale = 1.0f;
  template <int M>
  CORE_INLINE static void line(vf (*acc)[kVecs], int64_t next, const char* w, const char* x, int64_t row_bytes) {
    __m512bh weight = (__m512bh)_mm512_loadu_si512(w);
    for (int i = 0; i < M; ++i) add_pairs(acc[i * next][0], weight, x + i * row_bytes);
  }
};

// float8 widened to bfloat16: a line is two of that.
template <typename C>
struct Bf16Float8 {
  typedef bf16 X;
  static constexpr int inputs = 4, rows = kRows, panels = kWide;
  static constexpr bool round = false;
  static constexpr float scale = 1.0f;
  template <int M>
  CORE_INLINE static void line(vf (*acc)[kVecs], int64_t next, const char* w, const char* x, int64_t row_bytes) {
    PairsOf pairs = widen_pairs<C>(load_bits(w));
    for (int i = 0; i < M; ++i) add_pairs(acc[i * next][0], (__m512bh)pairs.first, x + i * row_bytes);
    for (int i = 0; i < M; ++i) add_pairs(acc[i * next][0], (__m512bh)pairs.second, x + i * row_bytes + 4);
  }
};
#endif

}  // namespace
}  // namespace gemm
}  // namespace core
