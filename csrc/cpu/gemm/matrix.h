// Tiles by the matrix instructions of ARM, BFMMLA and SMMLA. Included per instruction set; everything is in an unnamed
// namespace.
//
// One instruction multiplies 8 bytes of each of two rows by 8 bytes of each of two channels. A line of a panel has only
// 4 bytes of a channel, so two lines are interleaved by dwords as they are loaded, which makes operands of them as they
// are wanted. The packed layout stays the one of every kernel: with lines of 8 bytes a channel the interleaving, 8
// operations beside the 24 products of a full tile, would go, but one row would want it undone, or the weights twice.
#pragma once

#include <utility>

#include "common/vec.h"
#include "gemm/kernel.h"

namespace core {
namespace gemm {
namespace {

constexpr int kMatrixRows = 6;  // of a tile: 24 sums, 3 pairs of rows and the weights at hand fill 32 registers
constexpr int kQuads = 4;       // a panel's vectors of four channels

// 8 bytes at `even`, then 8 at `odd`.
CORE_INLINE vu row_pair(const char* even, const char* odd) {
  return (vu)vcombine_u8(vld1_u8(reinterpret_cast<const uint8_t*>(even)),
                         vld1_u8(reinterpret_cast<const uint8_t*>(odd)));
}

// M rows by one panel; a step is two lines. The last of an odd number of rows is paired with itself.
template <typename F, int M>
void matrix_tile(const char* x, int64_t row_bytes, const char* w, int64_t steps, float* out) {
  constexpr int kPairs = (M + 1) / 2;
  typename F::Sums sums[kPairs][2 * kQuads] = {};  // two rows' results for a channel, then those for the next
  const char* values = x + F::header;
  for (int64_t step = 0; step < steps; ++step, values += 8, w += 128) {
    vu rows[kPairs];
    CORE_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const char* even = values + 2 * i * row_bytes;
      rows[i] = row_pair(even, 2 * i + 1 < M ? even + row_bytes : even);
    }
    CORE_UNROLL
    for (int q = 0; q < kQuads; ++q) {
      auto first = (uint32x4_t)load_bits(w + q * 16), second = (uint32x4_t)load_bits(w + 64 + q * 16);
      auto low = (vu)vzip1q_u32(first, second), high = (vu)vzip2q_u32(first, second);
      CORE_UNROLL
      for (int i = 0; i < kPairs; ++i) {
        sums[i][2 * q] = F::add(sums[i][2 * q], rows[i], low);
        sums[i][2 * q + 1] = F::add(sums[i][2 * q + 1], rows[i], high);
        // In this order, weights from memory when it is their turn: no register is left for those of the next.
        __asm__ volatile("" : "+w"(sums[i][2 * q]), "+w"(sums[i][2 * q + 1]) : : "memory");
      }
    }
  }
  CORE_UNROLL
  for (int i = 0; i < M; ++i) {
    CORE_UNROLL
    for (int q = 0; q < kQuads; ++q) {
      auto left = (float64x2_t)sums[i / 2][2 * q], right = (float64x2_t)sums[i / 2][2 * q + 1];
      auto row = (typename F::Sums)(i % 2 == 0 ? vzip1q_f64(left, right) : vzip2q_f64(left, right));
      store(out + i * kPanel + q * kLanes, F::result(row, x + i * row_bytes));
    }
  }
}

typedef void MatrixTileOf(const char*, int64_t, const char*, int64_t, float*);

struct MatrixTiles {
  MatrixTileOf* at[kMatrixRows];
};

template <typename F, size_t... I>
constexpr MatrixTiles matrix_tiles(std::index_sequence<I...>) {
  return {{&matrix_tile<F, I + 1>...}};
}

template <typename F>
void run_matrix_tile(const Call& call, const Tile& where, const char*, float* out) {
  static constexpr MatrixTiles tiles = matrix_tiles<F>(std::make_index_sequence<kMatrixRows>());
  tiles.at[where.rows - 1](call.rows + where.row * call.row_bytes, call.row_bytes, panel_of(call, where.panel),
                           ceil_div(call.args->k, F::inputs), out);
}

}  // namespace
}  // namespace gemm
}  // namespace core
