// A thread's way through a product: its panels, one after another, meet rows whose activations stay in the cache.
#pragma once

#include "gemm/finish.h"
#include "gemm/kernel.h"

namespace core {
namespace gemm {
namespace {

constexpr int64_t kFewTileRows = 4;          // rows up to which scales are asked for
constexpr int64_t kRowsInCache = 768 << 10;  // bytes of prepared activations that are reused from the L2 cache

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// A product; its activations lie where `call` says.
struct Walk {
  const Kernel* kernel;
  Finish* finish;
  Call call;
  int64_t tile_rows, chunk;  // rows of a tile; tiles whose activations stay in the cache
};

// `call` still lacks the arguments and the rows.
inline Walk walk_of(const core_gemm_args& args, const Kernel& kernel) {
  Walk walk{};
  walk.kernel = &kernel;
  walk.finish = finish();
  walk.call = {nullptr, nullptr, kernel.row_bytes(args), padded_inputs(args), panel_bytes(args.format, args.k)};
  // Rows are divided evenly: 8 rows are 4 + 4, not 6 + 2.
  walk.tile_rows = kernel.rows >= kPanel ? kernel.rows : ceil_div(args.m, ceil_div(args.m, kernel.rows));
  int64_t tile_bytes = walk.call.row_bytes * walk.tile_rows;
  walk.chunk = tile_bytes > 0 && tile_bytes < kRowsInCache ? kRowsInCache / tile_bytes : 1;
  return walk;
}

// Asks for the lines of y that a tile of many rows is about to write: they are as many as its rows.
inline void expect_results(const Walk& walk, const Tile& tile) {
  const core_gemm_args& args = *walk.call.args;
  if (args.y == nullptr || tile.rows < kPanel) return;
  int64_t element = element_bytes(args.y_dtype);
  char* y = static_cast<char*>(args.y) + (tile.row * args.y_stride + tile.panel * kPanel) * element;
  for (int64_t row = 0; row < tile.rows; ++row, y += args.y_stride * element) {
    for (int64_t at = 0; at < tile.panels * kPanel * element; at += 64) __builtin_prefetch(y + at, 1);
  }
}

// Asks for what the next tile reads behind its lines, once each, where weights come from memory: scales of its channels,
// and in the line after them the sums of int8 weights.
inline void expect_scales(const Walk& walk, const Tile& tile) {
  const core_gemm_args& args = *walk.call.args;
  if (args.m > kFewTileRows || !scaled(format_of(args.format))) return;
  const char* next = panel_of(walk.call, tile.panel + tile.panels) + channel_scales_at(walk.call);
  for (int64_t p = 0; p < tile.panels; ++p, next += walk.call.panel_bytes) {
    __builtin_prefetch(next);
    __builtin_prefetch(next + 64);
  }
}

inline void walk_rows(const Walk& walk, Tile tile, int64_t row_end, const char* scratch, Best* best) {
  alignas(64) float out[kMostRows * kMostPanels * kPanel];
  for (; tile.row < row_end; tile.row += walk.tile_rows) {
    tile.rows = smaller(walk.tile_rows, row_end - tile.row);
    expect_results(walk, tile);
    expect_scales(walk, tile);
    walk.kernel->tile(walk.call, tile, scratch, out);
    walk.finish(walk.call, tile, out, walk.kernel->panels * kPanel, best);
  }
}

// Computes rows `row .. row_end - 1` by panels `first .. last - 1`. `scratch`: what the kernel asks for, or null;
// `best`: the largest value of each row, kept on the way, or null.
inline void walk_panels(const Walk& walk, int64_t row, int64_t row_end, int64_t first, int64_t last, char* scratch,
                        Best* best) {
  bool striped = best == nullptr && walk.kernel->stripe != nullptr;
  for (int64_t panel = first; panel < last;) {
    // A stripe takes all panels at once, unless they are widened few at a time.
    int64_t most = scratch == nullptr && striped ? last - panel : walk.kernel->panels;
    Tile tile{row, 0, panel, smaller(most, last - panel)};
    if (scratch != nullptr) walk.kernel->expand(walk.call, tile, scratch);
    int64_t done = striped ? walk.kernel->stripe(walk.call, tile, row_end, scratch) : 0;
    if (done == 0) {
      tile.panels = smaller(walk.kernel->panels, last - panel);
      walk_rows(walk, tile, row_end, scratch, best);
    }
    panel += done > 0 ? done : tile.panels;
  }
}

}  // namespace
}  // namespace gemm
}  // namespace core
