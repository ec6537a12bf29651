// Tiles in floating point where `blocks` times 32 inputs have scales of their own, after a panel's lines: sums of a group
// are multiplied before they are added up. Included per instruction set; everything is in an unnamed namespace.
#pragma once

#include "gemm/dense_tile.h"

namespace core {
namespace gemm {
namespace {

constexpr int64_t kScaleBytes = kPanel * 4;  // of a group in a panel

template <typename F, int64_t blocks>
constexpr int64_t kGroupLines = blocks * kBlock / F::inputs;

// Few rows: results stay in registers.
template <typename F, int64_t blocks, int M, int P>
void group_tile(const char* x, int64_t row_bytes, const char* w, int64_t panel_bytes, int64_t scales, int64_t lines,
                float* out) {
  constexpr int64_t kLines = kGroupLines<F, blocks>, kXBytes = F::inputs * sizeof(typename F::X);
  int64_t groups = ceil_div(lines, kLines);
  Ahead ahead(kLinesAhead<F, P>, lines * 64, P, panel_bytes);
  Ahead scales_ahead(kScalesAhead, groups * kScaleBytes, P, panel_bytes);
  vf total[M][P][kVecs] = {};
  for (int64_t group = 0; group < groups; ++group, x += kLines * kXBytes, lines -= kLines) {
    const char* at = w + scales + group * kScaleBytes;
    int64_t later = scales_ahead.from(group * kScaleBytes), begin = group * kLines * 64;
    for (int p = 0; p < P; ++p) ask(at + later + p * panel_bytes);
    Sums<F, M, P> sums = {};
    add_lines<F, M, P>(sums, x, row_bytes, w + begin, panel_bytes, lines < kLines ? lines : kLines, ahead, begin);
    CORE_UNROLL
    for (int p = 0; p < P; ++p) {
      CORE_UNROLL
      for (int v = 0; v < kVecs; ++v) {
        vf scale = load(reinterpret_cast<const float*>(at + p * panel_bytes) + v * kLanes);
        CORE_UNROLL
        for (int i = 0; i < M; ++i) {
          total[i][p][v] = multiply_add(total_of<F, M, P>(sums, i, p, v), scale, total[i][p][v]);
        }
      }
    }
  }
  CORE_UNROLL
  for (int i = 0; i < M; ++i) {
    CORE_UNROLL
    for (int p = 0; p < P; ++p) {
      CORE_UNROLL
      for (int v = 0; v < kVecs; ++v) store(out + (i * F::panels + p) * kPanel + v * kLanes, total[i][p][v]);
    }
  }
}

typedef void GroupTileOf(const char*, int64_t, const char*, int64_t, int64_t, int64_t, float*);

template <typename F, int64_t blocks>
struct GroupTiles {
  GroupTileOf* at[kFewRows][F::panels];
};

template <typename F, int64_t blocks, size_t... I>
constexpr GroupTiles<F, blocks> make_group_tiles(std::index_sequence<I...>) {
  GroupTiles<F, blocks> tiles{};
  ((tiles.at[I / F::panels][I % F::panels] = &group_tile<F, blocks, I / F::panels + 1, I % F::panels + 1>), ...);
  return tiles;
}

// More rows: results are in `out`, and all registers hold the sums of a group.
template <typename F, int64_t blocks>
void add_groups(const Call& call, const Tile& where, float* out) {
  constexpr int64_t kLines = kGroupLines<F, blocks>, kXBytes = F::inputs * sizeof(typename F::X);
  alignas(64) float part[F::rows * F::panels * kPanel];
  TileOf* compute = tile_of<F>(where);
  int64_t lines = ceil_div(call.args->k, F::inputs);
  const char *x = call.rows + where.row * call.row_bytes, *w = panel_of(call, where.panel);
  const char* scales = w + scales_at(call);
  Asking asking(where.soon, ceil_div(lines, kLines));
  for (int64_t line = 0; line < lines; line += kLines, scales += kScaleBytes) {
    int64_t here = lines - line < kLines ? lines - line : kLines;
    asking.step();
    compute(x + line * kXBytes, call.row_bytes, w + line * 64, call.panel_bytes, here, {}, part);
    for (int64_t p = 0; p < where.panels; ++p) {
      for (int v = 0; v < kVecs; ++v) {
        vf scale = load(reinterpret_cast<const float*>(scales + p * call.panel_bytes) + v * kLanes);
        for (int64_t i = 0, at = p * kPanel + v * kLanes; i < where.rows; ++i, at += F::panels * kPanel) {
          vf before = line == 0 ? vf{} : load(out + at);
          store(out + at, multiply_add(load(part + at), scale, before));
        }
      }
    }
  }
}

template <typename F, int64_t blocks>
void run_groups(const Call& call, const Tile& where, const char*, float* out) {
  static constexpr GroupTiles<F, blocks> tiles =
      make_group_tiles<F, blocks>(std::make_index_sequence<kFewRows * F::panels>());
  if (where.rows > kFewRows) return add_groups<F, blocks>(call, where, out);
  tiles.at[where.rows - 1][where.panels - 1](call.rows + where.row * call.row_bytes, call.row_bytes,
                                             panel_of(call, where.panel), call.panel_bytes, scales_at(call),
                                             ceil_div(call.args->k, F::inputs), out);
}

}  // namespace
}  // namespace gemm
}  // namespace core
