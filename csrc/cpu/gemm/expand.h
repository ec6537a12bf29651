// Panels of int8, float8 and four-bit weights widened to bf16, in the layout of bf16 weights: exactly where scales are of whole
// channels and come last, rounded after they are applied where they are of some inputs.
// For instruction sets with AVX512-BF16.
#pragma once

#include "common/vec.h"
#include "gemm/float8.h"
#include "gemm/kernel.h"
#include "gemm/tables.h"

namespace core {
namespace gemm {
namespace {

template <int64_t panels>
int64_t expanded_bytes(const core_gemm_args& args) {
  return panels * kPanel * padded_inputs(args) * 2;
}

// One line of two inputs: the first in the low halves.
CORE_INLINE void store_pair(char* to, vf first, vf second) {
  __m512bh both = _mm512_cvtne2ps_pbh((__m512)second, (__m512)first);  // the first 16, then the second
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,  //
                                         23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  _mm512_store_si512(to, _mm512_permutexvar_epi16(order, (__m512i)both));
}

void expand_int8(const Call& call, const Tile& tile, char* scratch) {
  for (int64_t panel = 0; panel < tile.panels; ++panel) {
    const char* w = panel_of(call, tile.panel + panel);
    for (int64_t line = 0; line < call.inputs / 4; ++line, scratch += 128) {
      vi four = reinterpret_cast<vi>(load_bits(w + line * 64));
      vf a = __builtin_convertvector((four << 24) >> 24, vf), b = __builtin_convertvector((four << 16) >> 24, vf);
      vf c = __builtin_convertvector((four << 8) >> 24, vf), d = __builtin_convertvector(four >> 24, vf);
      store_pair(scratch, a, b);
      store_pair(scratch + 64, c, d);
    }
  }
}

template <typename C>
void expand_float8(const Call& call, const Tile& tile, char* scratch) {
  for (int64_t panel = 0; panel < tile.panels; ++panel) {
    const char* w = panel_of(call, tile.panel + panel);
    for (int64_t line = 0; line < call.inputs / 4; ++line, scratch += 128) {
      PairsOf pairs = widen_pairs<C>(load_bits(w + line * 64));
      _mm512_store_si512(scratch, pairs.first);
      _mm512_store_si512(scratch + 64, pairs.second);
    }
  }
}

// As above, with scales for so many times 32 inputs.
template <typename C, int64_t blocks>
void expand_groups(const Call& call, const Tile& tile, char* scratch) {
  for (int64_t panel = 0; panel < tile.panels; ++panel) {
    const char* w = panel_of(call, tile.panel + panel);
    const char* scales = w + scales_at(call);
    for (int64_t block = 0; block < call.inputs / kBlock; ++block) {
      vf scale = load(reinterpret_cast<const float*>(scales) + block / blocks * kPanel);
      for (int line = 0; line < 8; ++line, w += 64, scratch += 128) {
        PairsOf pairs = widen_pairs<C>(load_bits(w));
        vu first = (vu)pairs.first, second = (vu)pairs.second;
        store_pair(scratch, as_float(first << 16) * scale, as_float(first & 0xffff0000u) * scale);
        store_pair(scratch + 64, as_float(second << 16) * scale, as_float(second & 0xffff0000u) * scale);
      }
    }
  }
}

// As above for codes of a table, with scales for 64 inputs.
template <typename Table>
void expand_table(const Call& call, const Tile& tile, char* scratch) {
  for (int64_t panel = 0; panel < tile.panels; ++panel) {
    const char* w = panel_of(call, tile.panel + panel);
    auto scales = reinterpret_cast<const float*>(w + scales_at(call));
    for (int64_t line = 0; line < call.inputs / 8; ++line, w += 64) {
      vf scale = load(scales + line / 8 * kPanel);
      vu codes = load_bits(w);
      CORE_UNROLL
      for (int i = 0; i < 4; ++i, scratch += 64) {
        store_pair(scratch, table_values<Table>(codes, i) * scale, table_values<Table>(codes, 4 + i) * scale);
      }
    }
  }
}

// Every format of floats, in their order, by `whole` where scales are of whole channels, else by `applied`.
#define CORE_WIDE_FLOATS(whole, applied)                                                                     \
  {whole(expand_float8<E4m3>),       applied(expand_groups<E4m3, 4>), applied(expand_groups<E4m3, 1>),       \
   applied(expand_table<Nf4>),       applied(expand_table<Fp4>),      whole(expand_float8<E5m2>),            \
   applied(expand_groups<E5m2, 4>), applied(expand_groups<E5m2, 1>)}

}  // namespace
}  // namespace gemm
}  // namespace core
