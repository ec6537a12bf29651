// Many rows by two panels, with AMX: the panels stay in the first cache level while the rows go by, and the results of
// one tile are scaled, converted and stored between the tile products of the next. For .amx.cpp files only.
#pragma once

#include "gemm/rows.h"
#include "gemm/tiles.h"

namespace core {
namespace gemm {
namespace {

constexpr int64_t kTall = 32;                 // rows of a tile
constexpr int64_t kPair = 2 * kPanel;         // and channels
constexpr int64_t kPairBytes = kPair * 4;     // of a row of sums

// A product's result before it is scaled is the same, bit for bit, however the operations after it are grouped; so
// multiplication and addition are kept from becoming one operation here, as they are two in `finish`.
CORE_INLINE vf apart(vf value) {
  __asm__("" : "+v"(value));
  return value;
}

CORE_INLINE void store_pair_of(bf16* y, vf low, vf high) {
  _mm512_storeu_si512(y, (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
}
CORE_INLINE void store_pair_of(float* y, vf low, vf high) {
  store(y, low);
  store(y + kLanes, high);
}

// The sums of one tile on their way to y.
template <bool Integer, typename T>
struct Pending {
  const char* sums = nullptr;
  const char* rows_at = nullptr;  // prepared activations of the tile, whose scales follow each 16 rows
  T* y = nullptr;
  int64_t y_stride = 0, group_bytes = 0, scales_at = 0;
  int64_t next = 0, count = 0;
  vf scale[2], bias[2];

  // Finishes as many rows, if there are any left.
  CORE_INLINE void some(int64_t rows) {
    int64_t end = next + rows < count ? next + rows : count;
    for (; next < end; ++next, sums += kPairBytes, y += y_stride) {
      vf low, high;
      if (Integer) {
        vf row = splat(reinterpret_cast<const float*>(rows_at + (next >> 4) * group_bytes + scales_at)[next & 15]);
        low = apart(__builtin_convertvector(reinterpret_cast<vi>(load_bits(sums)), vf) * row * scale[0]);
        high = apart(__builtin_convertvector(reinterpret_cast<vi>(load_bits(sums + 64)), vf) * row * scale[1]);
      } else {
        low = load(reinterpret_cast<const float*>(sums));
        high = load(reinterpret_cast<const float*>(sums) + kLanes);
      }
      store_pair_of(y, low + bias[0], high + bias[1]);
    }
  }
};

// 32 rows by 2 panels as `square` does it, and beside each step some rows of the tile before.
template <bool Integer, typename T>
CORE_INLINE void square_beside(const char* a, int64_t a_next, const char* b, int64_t b_next, int64_t steps, char* out,
                               Pending<Integer, T>& pending, int64_t rows) {
  clear_sums();
  for (int64_t step = 0; step < steps; ++step, a += kTileBytes, b += kTileBytes) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + b_next, 64);
    CORE_DOT(0, 4, 6)
    CORE_DOT(1, 4, 7)
    _tile_loadd(5, a + a_next, 64);
    CORE_DOT(2, 5, 6)
    CORE_DOT(3, 5, 7)
    pending.some(rows);
  }
  _tile_stored(0, out, kPairBytes);
  _tile_stored(1, out + 64, kPairBytes);
  _tile_stored(2, out + 16 * kPairBytes, kPairBytes);
  _tile_stored(3, out + 16 * kPairBytes + 64, kPairBytes);
}

// Rows `where.row .. row_end - 1` by the two panels from `panel` on, whose first bytes are at `w`.
template <bool Integer, typename T>
void pair_of_panels(const Call& call, int64_t row, int64_t row_end, int64_t panel, const char* w, int64_t panel_bytes,
                    int64_t steps) {
  const core_gemm_args& args = *call.args;
  alignas(64) char sums[2][kTall * kPairBytes];
  Pending<Integer, T> pending;
  for (int p = 0; p < 2; ++p) {
    if (Integer) pending.scale[p] = load(reinterpret_cast<const float*>(w + p * panel_bytes + scales_at(call)));
    pending.bias[p] = args.bias == nullptr ? vf{} : load(args.bias + (panel + p) * kPanel);
  }
  pending.y_stride = args.y_stride;
  pending.group_bytes = 16 * call.row_bytes;
  pending.scales_at = 16 * call.inputs;
  int64_t each = ceil_div(kTall, steps);
  for (int64_t turn = 0; row < row_end; row += kTall, turn ^= 1) {
    const char* x = call.rows + row * call.row_bytes;
    T* y = static_cast<T*>(args.y) + row * args.y_stride + panel * kPanel;
    int64_t count = row_end - row < kTall ? row_end - row : kTall;
    for (int64_t i = 0; i < count; ++i) _mm_prefetch(reinterpret_cast<const char*>(y + i * args.y_stride), _MM_HINT_ET0);
    square_beside<Integer, T>(x, 16 * call.row_bytes, w, panel_bytes, steps, sums[turn], pending, each);
    pending.sums = sums[turn];
    pending.rows_at = x;
    pending.y = y;
    pending.next = 0;
    pending.count = count;
  }
  pending.some(kTall);
}

// As `Kernel::stripe`; `w`: the first panel, whose next is `panel_bytes` away.
template <bool Integer>
bool run_stripe(const Call& call, const Tile& where, int64_t row_end, const char* w, int64_t panel_bytes,
                int64_t steps) {
  const core_gemm_args& args = *call.args;
  bool whole = where.panels % 2 == 0 && (where.panel + where.panels) * kPanel <= args.n;
  if (!whole || args.y == nullptr || row_end - where.row < kTall) return false;
  for (int64_t p = 0; p < where.panels; p += 2, w += 2 * panel_bytes) {
    if (args.y_dtype == CORE_F32) {
      pair_of_panels<Integer, float>(call, where.row, row_end, where.panel + p, w, panel_bytes, steps);
    } else {
      pair_of_panels<Integer, bf16>(call, where.row, row_end, where.panel + p, w, panel_bytes, steps);
    }
  }
  return true;
}

#undef CORE_DOT

}  // namespace
}  // namespace gemm
}  // namespace core
