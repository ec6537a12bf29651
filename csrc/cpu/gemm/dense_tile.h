// A tile of M rows by P panels in floating point. Its accumulators stay in registers while the inputs run past, one line
// (64 bytes) of every panel at a time; each line meets all M rows. Included per instruction set; everything is in an
// unnamed namespace.
#pragma once

#include <utility>

#include "gemm/ahead.h"
#include "gemm/lines.h"

namespace core {
namespace gemm {
namespace {

constexpr int kFewRows = 2;       // rows up to which a tile asks for its own weights
constexpr int64_t kDepth = 1024;  // lines of each panel that several tiles meet at once
constexpr int64_t kLineRun = 8;   // lines between two steps of asking for the next ones

// One accumulator per result would wait for itself: few results get two, for even and odd lines. Codes that are widened
// take registers, too.
template <typename F>
constexpr int kMostTwice = 8;
template <typename C>
constexpr int kMostTwice<WideFloat8<C>> = kVecs > 1 ? 4 : 8;
template <typename F, int M, int P>
constexpr int kTwice = M * P * kVecs <= kMostTwice<F> ? 2 : 1;

// Inputs of bfloat16 and wider are multiplied as they lie.
template <typename F, int P>
constexpr int64_t kLinesAhead = ahead_in(P, F::inputs > 2 ? kOpenedAhead : kAhead);

template <typename F, int M, int P>
using Sums = vf[kTwice<F, M, P>][M][P][kVecs];

// Adds `lines` lines of P panels by M rows, from the line on that is `begin` bytes behind a panel's first.
template <typename F, int M, int P>
CORE_INLINE void add_lines(Sums<F, M, P>& sums, const char* x, int64_t row_bytes, const char* w, int64_t panel_bytes,
                           int64_t lines, const Ahead& ahead, int64_t begin) {
  constexpr int64_t x_bytes = F::inputs * static_cast<int64_t>(sizeof(typename F::X));
  constexpr bool own = M <= kFewRows;
  int64_t line = 0;
  auto until = [&](int64_t last, int64_t later) __attribute__((always_inline)) {
    for (; line + kTwice<F, M, P> <= last; line += kTwice<F, M, P>) {
      for (int t = 0; t < kTwice<F, M, P>; ++t) {
        for (int p = 0; p < P; ++p) {
          const char* at = w + p * panel_bytes + (line + t) * 64;
          if (own) ask(at + later);
          F::template line<M>(&sums[t][0][p], P, at, x + (line + t) * x_bytes, row_bytes);
        }
      }
    }
  };
  if (own) until(ahead.lines_near(begin, lines), ahead.distance);
  until(lines, ahead.beyond);
  if (line < lines) {
    for (int p = 0; p < P; ++p) {
      F::template line<M>(&sums[0][0][p], P, w + p * panel_bytes + line * 64, x + line * x_bytes, row_bytes);
    }
  }
}

// What the sums of row i, panel p, come to.
template <typename F, int M, int P>
CORE_INLINE vf total_of(const Sums<F, M, P>& sums, int i, int p, int v) {
  vf total = sums[0][i][p][v];
  if (kTwice<F, M, P> == 2) total = total + sums[kTwice<F, M, P> - 1][i][p][v];
  return total * F::scale;
}

template <typename F, int M, int P>
void tile(const char* x, int64_t row_bytes, const char* w, int64_t panel_bytes, int64_t lines, const Soon& soon,
          float* out) {
  Sums<F, M, P> sums = {};
  constexpr int64_t x_bytes = F::inputs * static_cast<int64_t>(sizeof(typename F::X));
  Ahead ahead(kLinesAhead<F, P>, lines * 64, P, panel_bytes);
  int64_t run = run_of(soon, lines, kLineRun);
  Asking asking(soon, ceil_div(lines, kLineRun));
  for (int64_t line = 0; line < lines; line += run) {
    asking.step();
    add_lines<F, M, P>(sums, x + line * x_bytes, row_bytes, w + line * 64, panel_bytes,
                       lines - line < run ? lines - line : run, ahead, 0);
  }
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        store(out + i * F::panels * kPanel + p * kPanel + v * kLanes, total_of<F, M, P>(sums, i, p, v));
      }
    }
  }
}

typedef void TileOf(const char*, int64_t, const char*, int64_t, int64_t, const Soon&, float*);

template <typename F>
struct Tiles {
  TileOf* at[F::rows][F::panels];
};

template <typename F, size_t... I>
constexpr Tiles<F> make_tiles(std::index_sequence<I...>) {
  Tiles<F> tiles{};
  ((tiles.at[I / F::panels][I % F::panels] = &tile<F, I / F::panels + 1, I % F::panels + 1>), ...);
  return tiles;
}

template <typename F>
TileOf* tile_of(const Tile& where) {
  static constexpr Tiles<F> tiles = make_tiles<F>(std::make_index_sequence<F::rows * F::panels>());
  return tiles.at[where.rows - 1][where.panels - 1];
}

// Adds what a tile's further inputs give to the sums at `out`.
template <typename F>
__attribute__((noinline)) void add_tile(TileOf* compute, const char* x, int64_t row_bytes, const char* w,
                                        int64_t panel_bytes, int64_t lines, const Tile& where, float* out) {
  alignas(64) float part[F::rows * F::panels * kPanel];
  compute(x, row_bytes, w, panel_bytes, lines, where.soon, part);
  for (int64_t i = 0; i < where.rows; ++i) {
    for (int64_t at = i * F::panels * kPanel, end = at + where.panels * kPanel; at < end; ++at) out[at] += part[at];
  }
}

template <typename F>
void run_tile(const Call& call, const Tile& where, const char* scratch, float* out) {
  int64_t panel_bytes = scratch != nullptr ? call.inputs / F::inputs * 64 : call.panel_bytes;
  const char* w = (scratch != nullptr ? scratch : panel_of(call, where.panel)) + where.input / F::inputs * 64;
  const char* x = call.rows + where.row * call.row_bytes + where.input * static_cast<int64_t>(sizeof(typename F::X));
  int64_t left = call.args->k - where.input, lines = ceil_div(left < where.inputs ? left : where.inputs, F::inputs);
  TileOf* compute = tile_of<F>(where);
  if (where.input > 0) return add_tile<F>(compute, x, call.row_bytes, w, panel_bytes, lines, where, out);
  compute(x, call.row_bytes, w, panel_bytes, lines, where.soon, out);
}

}  // namespace
}  // namespace gemm
}  // namespace core
