// A thread's way through a product: its panels, one after another, meet rows whose activations stay in the cache.
#pragma once

#include "gemm/ahead.h"
#include "gemm/finish.h"
#include "gemm/kernel.h"

namespace core {
namespace gemm {
namespace {

constexpr int64_t kFewTileRows = 4;          // rows up to which scales are asked for
constexpr int64_t kMostAsking = 16;          // tiles by the same weights up to which they ask for the next ones
constexpr int64_t kShallow = 2;              // times a kernel's depth that are still met at once
constexpr int64_t kDeepRows = 96;            // rows whose sums are kept until all inputs have been met
static_assert(kDeepRows >= kMostRows, "the sums of a tile have to fit");
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

// What tiles ask for: what they know best themselves, what lies a little ahead, the next weights, or nothing, which is an
// address without bytes.
enum class Asked { own, ahead, next, nothing };

// How rows that meet the same weights go through them.
struct Descent {
  int64_t depth;  // inputs at once
  int64_t rows;   // whose sums are kept until all inputs have been met
  Asked asked;
};

inline Descent descent_of(const Walk& walk, int64_t rows) {
  int64_t inputs = walk.call.inputs, depth = walk.kernel->depth, tiles = ceil_div(rows, walk.tile_rows);
  auto from = [&](int64_t least) { return least > 0 && rows >= least && inputs > 0; };
  Asked asked = tiles == 1 ? Asked::own : Asked::nothing;
  if (tiles <= kMostAsking && from(walk.kernel->asking)) asked = Asked::next;
  if (tiles == 1 && from(walk.kernel->in_turn)) asked = Asked::ahead;
  if (depth == 0 || tiles == 1 || inputs <= kShallow * depth) return {inputs, walk.tile_rows, asked};
  return {round_up(ceil_div(inputs, ceil_div(inputs, depth)), 64), kDeepRows / walk.tile_rows * walk.tile_rows, asked};
}

// What is read behind the tile's weights: the next inputs of its panels, or the first ones of the next panels.
inline Soon next_weights(const Walk& walk, const Tile& tile) {
  int64_t inputs = walk.call.inputs, input = tile.input + tile.inputs, panel = tile.panel, panels = tile.panels;
  if (input >= inputs) {
    input = 0;
    panel += panels;
    panels = smaller(panels, ceil_div(walk.call.args->n, kPanel) - panel);
  }
  int64_t bytes = walk.call.panel_bytes, lines = scales_at(walk.call);
  if (tile.inputs >= inputs) lines = bytes;  // with what comes after the lines
  int64_t begin = lines * input / inputs, end = lines * smaller(input + tile.inputs, inputs) / inputs;
  return {panel_of(walk.call, panel) + begin, end - begin, bytes, 0, panels * (end - begin)};
}

// What lies a little ahead of a tile whose panels are taken in turn.
inline Soon weights_ahead(const Walk& walk, const Tile& tile) {
  int64_t bytes = walk.call.panel_bytes * tile.panels;
  return {panel_of(walk.call, tile.panel) + kAloneAhead, bytes, bytes, 0, bytes};
}

// Computes the tile's inputs for rows up to `last`, which ask for `soon` on their way, and leaves their sums at `out`.
// The tile is changed in place: to copy one that was just written waits until the stores before it are in the cache.
inline void walk_tiles(const Walk& walk, Tile& tile, int64_t last, const Soon& soon, const char* scratch, float* out) {
  int64_t stride = walk.kernel->panels * kPanel, first = tile.row;
  for (; tile.row < last; tile.row += walk.tile_rows) {
    tile.rows = smaller(walk.tile_rows, last - tile.row);
    int64_t done = tile.row - first;
    if (soon.at != nullptr) tile.soon = part_of(soon, done, done + tile.rows, last - first);
    expect_results(walk, tile);
    expect_scales(walk, tile);
    walk.kernel->tile(walk.call, tile, scratch, out + done * stride);
  }
}

inline void walk_rows(const Walk& walk, Tile& tile, int64_t row_end, const char* scratch, Best* best) {
  alignas(64) float out[kDeepRows * kMostPanels * kPanel];
  int64_t stride = walk.kernel->panels * kPanel, begin = tile.row, rows = row_end - begin;
  Descent descent = descent_of(walk, rows);
  tile.inputs = descent.depth;
  if (descent.asked == Asked::nothing) tile.soon.at = panel_of(walk.call, tile.panel);
  for (int64_t row = begin, last; row < row_end; row = last) {
    last = smaller(row + descent.rows, row_end);
    tile.input = 0;
    do {
      tile.row = row;
      Soon soon;
      if (descent.asked == Asked::ahead) soon = weights_ahead(walk, tile);
      if (descent.asked == Asked::next) soon = part_of(next_weights(walk, tile), row - begin, last - begin, rows);
      walk_tiles(walk, tile, last, soon, scratch, out);
      tile.input += tile.inputs;
    } while (tile.input < walk.call.inputs);
    for (tile.row = row; tile.row < last; tile.row += walk.tile_rows) {
      tile.rows = smaller(walk.tile_rows, last - tile.row);
      walk.finish(walk.call, tile, out + (tile.row - row) * stride, stride, best);
    }
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
