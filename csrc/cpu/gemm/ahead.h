// Where weights are asked for before their use, by tiles that meet few rows: memory sets their pace, and a tile that
// began at weights that nobody has asked for would wait for it. Included per instruction set.
#pragma once

#include "gemm/kernel.h"

namespace core {
namespace gemm {
namespace {

constexpr int64_t kAhead = 1024;       // bytes ahead of their use that lines are asked for
constexpr int64_t kOpenedAhead = 2048;  // the same of those that are opened first: the processor itself sees less far
constexpr int64_t kScalesAhead = 256;   // the same of scales, which lie behind them

// Of `bytes` bytes in each of a tile's panels, those `distance` further on, `most` at most; at their end, the first ones
// of the next tile, which is `panels * panel_bytes` away.
struct Ahead {
  int64_t distance, near, beyond;

  Ahead(int64_t most, int64_t bytes, int64_t panels, int64_t panel_bytes)
      : distance(most < bytes ? most : bytes),
        near(bytes - distance),
        beyond(distance + panels * panel_bytes - bytes) {}

  // From the place `offset` to the one that is asked for.
  int64_t from(int64_t offset) const { return offset < near ? distance : beyond; }

  // How many of `lines` lines from the place `offset` on are followed by what is asked for in the same panel.
  int64_t lines_near(int64_t offset, int64_t lines) const {
    int64_t left = (near - offset) / 64;
    return left < 0 ? 0 : left < lines ? left : lines;
  }
};

}  // namespace
}  // namespace gemm
}  // namespace core
