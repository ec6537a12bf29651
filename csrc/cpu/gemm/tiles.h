// Products of AMX tiles: 16 rows by 16 channels by 64 bytes of inputs an instruction. For .amx.cpp files only.
//
// Activations are copied into tiles, 1 KB each, all tiles of 16 rows next to each other: read with the caller's stride,
// the 16 rows of a tile would often share one set of the L1 cache. A weight tile is 16 lines of a panel as they are.
#pragma once

#include <immintrin.h>

#include "gemm/kernel.h"

namespace core {
namespace gemm {
namespace {

constexpr int64_t kTileBytes = 1024;
constexpr int64_t kWide = 4;       // panels of a tile of the result
constexpr int64_t kAhead = 4096;   // bytes ahead of its use that a weight is asked for, where it is used once
constexpr int64_t kFewRows = 64;   // rows up to which weights come from memory rather than from the L2 cache

struct alignas(64) Config {
  uint8_t palette, start, reserved[14];
  uint16_t bytes[16];
  uint8_t rows[16];
};

// All eight tiles are whole: rows past the last hold what the workspace happens to hold, and nobody reads their sums.
// A constant, because gcc 12 takes the instruction to read only the first eight bytes and drops stores to the others.
constexpr Config kConfig = {1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

inline void enter() { _tile_loadconfig(&kConfig); }

inline void leave() { _tile_release(); }

// Tile numbers are part of the instructions, so they are literals.
#define CORE_DOT(sum, a, b)       \
  if (Integer) {                  \
    _tile_dpbssd(sum, a, b);      \
  } else {                        \
    _tile_dpbf16ps(sum, a, b);    \
  }

inline void clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// Asks for a tile: loads of tiles wait for memory one after another.
template <bool Fetch>
inline void fetch(const char* from) {
  if (!Fetch) return;
#pragma GCC unroll 16
  for (int64_t at = 0; at < kTileBytes; at += 64) _mm_prefetch(from + kAhead + at, _MM_HINT_T1);
}

// 32 rows by 2 panels: `a` and `b` are the first tiles, the second row of tiles and the second panel `a_next` and
// `b_next` bytes from them; `out` gets float32 or int32.
template <bool Integer, bool Fetch>
void square(const char* a, int64_t a_next, const char* b, int64_t b_next, int64_t steps, void* out, int64_t out_bytes) {
  clear_sums();
  for (int64_t step = 0; step < steps; ++step, a += kTileBytes, b += kTileBytes) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + b_next, 64);
    CORE_DOT(0, 4, 6)
    fetch<Fetch>(b);
    CORE_DOT(1, 4, 7)
    fetch<Fetch>(b + b_next);
    _tile_loadd(5, a + a_next, 64);
    CORE_DOT(2, 5, 6)
    CORE_DOT(3, 5, 7)
  }
  char* c = static_cast<char*>(out);
  _tile_stored(0, c, out_bytes);
  _tile_stored(1, c + 64, out_bytes);
  _tile_stored(2, c + 16 * out_bytes, out_bytes);
  _tile_stored(3, c + 16 * out_bytes + 64, out_bytes);
}

// 16 rows by 4 panels, the bytes from the first panel to each: four streams of weights, because with two the processor
// fetches too little ahead (and with four more is no use).
template <bool Integer>
void flat(const char* a, const char* b, const int64_t* panel, int64_t steps, void* out, int64_t out_bytes) {
  clear_sums();
  for (int64_t step = 0; step < steps; ++step, a += kTileBytes, b += kTileBytes) {
    _tile_loadd(4, a, 64);
    _tile_loadd(5, b, 64);
    CORE_DOT(0, 4, 5)
    _tile_loadd(6, b + panel[1], 64);
    CORE_DOT(1, 4, 6)
    _tile_loadd(7, b + panel[2], 64);
    CORE_DOT(2, 4, 7)
    _tile_loadd(5, b + panel[3], 64);
    CORE_DOT(3, 4, 5)
  }
  char* c = static_cast<char*>(out);
  _tile_stored(0, c, out_bytes);
  _tile_stored(1, c + 64, out_bytes);
  _tile_stored(2, c + 128, out_bytes);
  _tile_stored(3, c + 192, out_bytes);
}

// A tile of the result; `w`: its first panel, whose next is `panel_bytes` away. Panels that are not there are computed
// as the last one, for nobody.
template <bool Integer, bool Fetch>
void multiply_tile(const Call& call, const Tile& where, const char* w, int64_t panel_bytes, int64_t steps, float* out) {
  const char* x = call.rows + where.row * call.row_bytes;
  int64_t last = (where.panels - 1) * panel_bytes, panel[kWide];
  for (int i = 0; i < kWide; ++i) panel[i] = i * panel_bytes < last ? i * panel_bytes : last;
  constexpr int64_t out_bytes = kWide * kPanel * 4;
  if (where.rows <= 16) return flat<Integer>(x, w, panel, steps, out, out_bytes);
  for (int i = 0; i < where.panels; i += 2) {
    const char* pair = w + panel[i];
    square<Integer, Fetch>(x, 16 * call.row_bytes, pair, panel[i + 1] - panel[i], steps, out + i * kPanel, out_bytes);
  }
}

// As above; `once`: whether the weights come from memory and are used for one tile.
template <bool Integer>
void multiply(const Call& call, const Tile& where, const char* w, int64_t panel_bytes, int64_t steps, bool once,
              float* out) {
  if (once) {
    multiply_tile<Integer, true>(call, where, w, panel_bytes, steps, out);
  } else {
    multiply_tile<Integer, false>(call, where, w, panel_bytes, steps, out);
  }
}

}  // namespace
}  // namespace gemm
}  // namespace core
