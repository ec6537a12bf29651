// Where weights are asked for before their use: a tile that began at weights that nobody has asked for would wait for
// memory. Tiles of few rows, whose pace memory sets, ask for their own lines a little ahead (`Ahead`). Others are told
// what to ask for (`Asking`): a tile that is alone and takes its panels in turn, for what lies a little ahead; tiles that
// all go through the same weights, for the next ones. Included per instruction set.
#pragma once

#include "common/vec.h"
#include "gemm/kernel.h"

namespace core {
namespace gemm {
namespace {

// Bytes ahead of their use that weights are asked for.
constexpr int64_t kAhead = 1024;        // lines of each of several panels
constexpr int64_t kOpenedAhead = 2048;  // and of those that are opened first: the processor itself sees less far
constexpr int64_t kAloneAhead = 8192;   // lines of a panel alone: as many have to be on their way
constexpr int64_t kScalesAhead = 1024;  // scales, which lie behind the lines

constexpr int64_t ahead_in(int panels, int64_t each) { return panels == 1 ? kAloneAhead : each; }

// Asks for a line from memory. It comes to the second cache level: the first one can wait for a few lines only (24 on
// Zen 4), fewer than hide the latency of memory.
CORE_INLINE void ask(const char* line) { __builtin_prefetch(line, 0, 2); }

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

// Of `parts` equal parts, those from `first` on and before `last`.
inline Soon part_of(const Soon& all, int64_t first, int64_t last, int64_t parts) {
  int64_t bytes = all.end - all.begin;
  return {all.at, all.run, all.stride, all.begin + bytes * first / parts, all.begin + bytes * last / parts};
}

// Of so many lines (or blocks), how many a tile takes between two steps of asking: all, where it asks for nothing.
inline int64_t run_of(const Soon& soon, int64_t lines, int64_t run) { return soon.end > soon.begin ? run : lines; }

// Asks for bytes by and by, the same number with each of `steps` steps, in whole lines.
class Asking {
 public:
  Asking(const Soon& soon, int64_t steps)
      : left_(soon.end - soon.begin), each_(round_up(ceil_div(left_, steps > 0 ? steps : 1), 64)), run_(soon.run),
        gap_(soon.stride - soon.run) {
    if (left_ <= 0) return;
    at_ = soon.at + soon.begin / run_ * soon.stride + soon.begin % run_;
    here_ = run_ - soon.begin % run_;
  }

  CORE_INLINE void step() {
    int64_t until = left_ > each_ ? left_ - each_ : 0;
    for (; left_ > until; left_ -= 64, at_ += 64, here_ -= 64) {
      if (here_ <= 0) {
        at_ += gap_;
        here_ += run_;
      }
      ask(at_);
    }
  }

 private:
  const char* at_ = nullptr;
  int64_t left_, each_, run_, gap_;
  int64_t here_ = 0;  // bytes up to the end of the run
};

}  // namespace
}  // namespace gemm
}  // namespace core
