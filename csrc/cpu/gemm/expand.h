// Panels of other formats widened to bf16, in the layout of bf16 weights. Int8 weights stay exact.
// For instruction sets with AVX512-BF16.
#pragma once

#include "gemm/blocks.h"
#include "gemm/kernel.h"

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

CORE_INLINE void expand_line(vu codes, vf scale, vf minimum, char* to) {
  vf part[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    vi code = reinterpret_cast<vi>((codes >> (8 * j)) & 0xffu);
    part[j] = __builtin_convertvector(code, vf) * scale + minimum;
  }
  store_pair(to, part[0], part[1]);
  store_pair(to + 64, part[2], part[3]);
}

template <typename F>
void expand_blocks(const Call& call, const Tile& tile, char* scratch) {
  int64_t blocks = call.inputs / kBlock;
  for (int64_t panel = 0; panel < tile.panels; ++panel) {
    const char* codes = panel_of(call, tile.panel + panel);
    const char* scales = codes + scales_at(call);
    for (int64_t block = 0; block < blocks; ++block, codes += F::code_bytes, scratch += 1024) {
      const char* shared = scales + block / F::group * F::scale_bytes;
      BlockScale scale = block_scale<F>(group_scale<F>(shared, 0), shared, block % F::group, 0);
      vf low = scale.minimum - scale.low * F::zero, high = scale.minimum - scale.high * F::zero;
#pragma GCC unroll 8
      for (int g = 0; g < 8; ++g) {
        expand_line(code_line<F>(codes, g, 0), g < 4 ? scale.low : scale.high, g < 4 ? low : high, scratch + g * 128);
      }
    }
  }
}

}  // namespace
}  // namespace gemm
}  // namespace core
