// Many rows by two panels, with AMX: the panels stay in the first cache level while the rows go by, and the results of
// one tile are scaled, converted and stored between the tile products of the next. For .amx.cpp files only.
#pragma once

#include "elementwise/activate.h"
#include "gemm/rows.h"
#include "gemm/tiles.h"

namespace core {
namespace gemm {
namespace {

constexpr int64_t kTall = 32;                 // rows of a tile
constexpr int64_t kPair = 2 * kPanel;         // and channels
constexpr int64_t kPairBytes = kPair * 4;     // of a row of sums
constexpr int kGroup = 4;                     // rows that are finished together

// A product's result before it is scaled is the same, bit for bit, however the operations after it are grouped; so
// multiplication and addition are kept from becoming one operation here, as they are two in `finish`.
CORE_INLINE vf apart(vf value) {
  __asm__("" : "+v"(value));
  return value;
}

#define CORE_EACH_ROW _Pragma("GCC unroll 8") for (int i = 0; i < kGroup; ++i)

// What becomes of 16 channels of either panel: they are stored next to each other.
template <typename Y>
struct Stored {
  typedef Y T;
  CORE_INLINE static void finish(vf (&)[kGroup], vf (&)[kGroup]) {}
  CORE_INLINE static void put(bf16* y, vf low, vf high) {
    _mm512_storeu_si512(y, (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
  }
  CORE_INLINE static void put(float* y, vf low, vf high) {
    store(y, low);
    store(y + kLanes, high);
  }
};

// Or they meet in a gated activation, rounded as if they had been stored.
template <int64_t Kind>
struct Gated {
  typedef bf16 T;
  CORE_INLINE static void finish(vf (&low)[kGroup], vf (&high)[kGroup]) {
    CORE_EACH_ROW low[i] = widen_bf16(round_bf16(low[i]));
    CORE_EACH_ROW high[i] = widen_bf16(round_bf16(high[i]));
    activate<bf16, Kind>(low);
    CORE_EACH_ROW low[i] = low[i] * high[i];
  }
  CORE_INLINE static void put(bf16* y, vf low, vf) { store(y, low); }
};

// The sums of one tile on their way to y.
template <bool Integer, typename Put>
struct Pending {
  const char* sums = nullptr;
  const char* rows_at = nullptr;  // prepared activations of the tile, whose scales follow each 16 rows
  typename Put::T* y = nullptr;
  int64_t y_stride = 0, group_bytes = 0, scales_at = 0;
  int64_t next = 0, count = 0;
  bool biased = false;
  vf scale[2] = {}, bias[2] = {};

  // Finishes the next rows, if there are any left. Step by step for all of them: see `silu_roughly`.
  CORE_INLINE void some() {
    if (next >= count) return;
    vf low[kGroup], high[kGroup];
    CORE_EACH_ROW low[i] = load(reinterpret_cast<const float*>(sums + i * kPairBytes));
    CORE_EACH_ROW high[i] = load(reinterpret_cast<const float*>(sums + i * kPairBytes + 64));
    if (Integer) {
      auto rows = reinterpret_cast<const float*>(rows_at + (next >> 4) * group_bytes + scales_at) + (next & 15);
      CORE_EACH_ROW low[i] = __builtin_convertvector(reinterpret_cast<vi>(low[i]), vf) * rows[i];
      CORE_EACH_ROW high[i] = __builtin_convertvector(reinterpret_cast<vi>(high[i]), vf) * rows[i];
      CORE_EACH_ROW low[i] = apart(low[i] * scale[0]);
      CORE_EACH_ROW high[i] = apart(high[i] * scale[1]);
    }
    if (biased) {
      CORE_EACH_ROW low[i] = low[i] + bias[0];
      CORE_EACH_ROW high[i] = high[i] + bias[1];
    }
    Put::finish(low, high);
    int64_t left = count - next;
    CORE_EACH_ROW {
      if (i < left) Put::put(y + i * y_stride, low[i], high[i]);
    }
    next += kGroup;
    sums += kGroup * kPairBytes;
    y += kGroup * y_stride;
  }

  CORE_INLINE void rest() {
    while (next < count) some();
  }
};

// Two panels, `apart` panels from each other, and where the first one's channels go.
struct Pair {
  const char* w;
  int64_t panel_bytes, panel, apart, steps;
  void* y;  // row 0
  int64_t y_stride;
  int64_t ahead;  // bytes to the pair that is next, or 0 where it need not be asked for

  int64_t to_second() const { return apart * panel_bytes; }
};

// 32 rows by 2 panels as `square` does it, and beside each step some rows of the tile before.
template <bool Integer, typename Put>
CORE_INLINE void square_beside(const char* a, int64_t a_next, const Pair& pair, int64_t ahead, char* out,
                               Pending<Integer, Put>& pending) {
  const char* b = pair.w;
  int64_t b_next = pair.to_second(), steps = pair.steps, due = 0;
  clear_sums();
  for (int64_t step = 0; step < steps; ++step, a += kTileBytes, b += kTileBytes) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + b_next, 64);
    CORE_DOT(0, 4, 6)
    CORE_DOT(1, 4, 7)
    if (ahead != 0) {
#pragma GCC unroll 16
      for (int64_t at = 0; at < kTileBytes; at += 64) {
        _mm_prefetch(b + ahead + at, _MM_HINT_T1);
        _mm_prefetch(b + b_next + ahead + at, _MM_HINT_T1);
      }
    }
    _tile_loadd(5, a + a_next, 64);
    CORE_DOT(2, 5, 6)
    CORE_DOT(3, 5, 7)
    // Groups are spread over the steps.
    for (due += kTall / kGroup; due >= steps; due -= steps) pending.some();
  }
  _tile_stored(0, out, kPairBytes);
  _tile_stored(1, out + 64, kPairBytes);
  _tile_stored(2, out + 16 * kPairBytes, kPairBytes);
  _tile_stored(3, out + 16 * kPairBytes + 64, kPairBytes);
}

// Pairs of panels one after another, whose last results wait to be finished beside the next pair's products.
template <bool Integer, typename Put>
class Pairs {
 public:
  explicit Pairs(const Call& call) : call_(call) {}
  ~Pairs() { pending_.rest(); }

  // Rows `row .. row_end - 1` by the two panels.
  void run(int64_t row, int64_t row_end, const Pair& pair) {
    vf scale[2] = {}, bias[2] = {};
    for (int64_t p = 0; p < 2; ++p) {
      if (Integer) scale[p] = load(reinterpret_cast<const float*>(pair.w + p * pair.to_second() + scales_at(call_)));
      if (call_.args->bias != nullptr) bias[p] = load(call_.args->bias + (pair.panel + p * pair.apart) * kPanel);
    }
    int64_t ahead = pair.ahead;
    for (; row < row_end; row += kTall, turn_ ^= 1, ahead = 0) {
      const char* x = call_.rows + row * call_.row_bytes;
      auto y = static_cast<typename Put::T*>(pair.y) + row * pair.y_stride + pair.panel * kPanel;
      int64_t count = row_end - row < kTall ? row_end - row : kTall;
      // Stores wait for their lines one after another.
      for (int64_t i = 0; i < count; ++i) __builtin_prefetch(y + i * pair.y_stride, 1);
      square_beside<Integer, Put>(x, 16 * call_.row_bytes, pair, ahead, sums_[turn_], pending_);
      pending_ = {sums_[turn_], x, y, pair.y_stride, 16 * call_.row_bytes, 16 * call_.inputs, 0, count,
                  call_.args->bias != nullptr, {scale[0], scale[1]}, {bias[0], bias[1]}};
    }
  }

 private:
  alignas(64) char sums_[2][kTall * kPairBytes];
  const Call& call_;
  Pending<Integer, Put> pending_;
  int64_t turn_ = 0;
};

// Whether weights are used for so few rows that they come from memory: then the next are asked for.
inline bool once(const Call& call) { return call.args->m <= kFewRows; }

template <bool Integer, typename Put>
void run_pairs(const Call& call, int64_t row, int64_t row_end, Pair pair, int64_t panels, int64_t each) {
  Pairs<Integer, Put> pairs(call);
  int64_t further = each * pair.panel_bytes;
  for (int64_t p = 0; p + each <= panels; p += each, pair.panel += each, pair.w += further) {
    pair.ahead = once(call) && p + 2 * each <= panels ? further : 0;
    pairs.run(row, row_end, pair);
  }
}

// As `Kernel::stripe`; `w`: the first panel, whose next is `panel_bytes` away.
template <bool Integer>
int64_t run_stripe(const Call& call, const Tile& where, int64_t row_end, const char* w, int64_t panel_bytes,
                   int64_t steps) {
  const core_gemm_args& args = *call.args;
  int64_t whole = args.n / kPanel - where.panel;
  if (whole > where.panels) whole = where.panels;
  whole -= whole % 2;
  if (whole <= 0 || args.y == nullptr || args.m <= kPanel) return 0;
  Pair pair{w, panel_bytes, where.panel, 1, steps, args.y, args.y_stride, 0};
  if (args.y_dtype == CORE_F32) {
    run_pairs<Integer, Stored<float>>(call, where.row, row_end, pair, whole, 2);
  } else {
    run_pairs<Integer, Stored<bf16>>(call, where.row, row_end, pair, whole, 2);
  }
  return whole;
}

// As `Kernel::gated`.
template <bool Integer>
void run_gated(const Call& call, const Tile& where, int64_t row_end, const Gating& gating, int64_t steps) {
  int64_t half = call.args->n / 2 / kPanel;
  Pair pair{panel_of(call, where.panel), call.panel_bytes, where.panel, half, steps, gating.out, gating.stride, 0};
  if (gating.activation == CORE_SILU) {
    run_pairs<Integer, Gated<CORE_SILU>>(call, where.row, row_end, pair, where.panels, 1);
  } else if (gating.activation == CORE_GELU) {
    run_pairs<Integer, Gated<CORE_GELU>>(call, where.row, row_end, pair, where.panels, 1);
  } else {
    run_pairs<Integer, Gated<CORE_GELU_TANH>>(call, where.row, row_end, pair, where.panels, 1);
  }
}

#undef CORE_EACH_ROW
#undef CORE_DOT

}  // namespace
}  // namespace gemm
}  // namespace core
