// Panels of block formats widened to bf16, in the layout of bf16 weights: `code * scale + minimum`, rounded.
// For instruction sets with AVX512-BF16.
#pragma once

#include "gemm/blocks.h"
#include "gemm/expand.h"

namespace core {
namespace gemm {
namespace {

CORE_INLINE void widen_line(vu codes, vf scale, vf minimum, char* to) {
  vf part[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    vi code = reinterpret_cast<vi>((codes >> (8 * j)) & 0xffu);
    part[j] = __builtin_convertvector(code, vf) * scale + minimum;
  }
  store_pair(to, part[0], part[1]);
  store_pair(to + 64, part[2], part[3]);
}

// As `Kernel::expand`.
template <typename F>
void widen_blocks(const Call& call, const Tile& tile, char* scratch) {
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
        widen_line(code_line<F>(codes, g, 0), g < 4 ? scale.low : scale.high, g < 4 ? low : high, scratch + g * 128);
      }
    }
  }
}

}  // namespace
}  // namespace gemm
}  // namespace core
