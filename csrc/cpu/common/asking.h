// Prefetching by threads that wait; for parallel.cpp.
#pragma once

#include "common/parallel.h"

namespace core {
namespace {

// Asks for the beginning of a thread's share of what is read next, line by line, in the order of the products' tiles:
// so many pieces abreast.
class Asking {
 public:
  // Begins anew where `ahead` is other memory than before.
  void aim(const Ahead& ahead, int64_t thread, int64_t team) {
    if (ahead.begin == aimed_) return;
    aimed_ = ahead.begin;
    int64_t first = ahead.pieces * thread / team, last = ahead.pieces * (thread + 1) / team;
    abreast_ = last - first < kAbreast ? last - first : kAbreast;
    step_ = ahead.piece_bytes;
    next_ = ahead.begin + first * step_;
    int64_t lines = abreast_ * step_ / kLine;
    left_ = lines < kMost ? lines : kMost;
    piece_ = 0;
  }

  // Returns whether there was anything left to ask for.
  bool ask() {
    if (left_ <= 0) return false;
    for (int i = 0; i < kAtOnce; ++i) {
      __builtin_prefetch(next_ + piece_ * step_, 0, 2);
      if (++piece_ < abreast_) continue;
      piece_ = 0;
      next_ += kLine;
    }
    left_ -= kAtOnce;
    return true;
  }

 private:
  static constexpr int kAtOnce = 2;  // lines between two looks for the next round
  static constexpr int64_t kLine = 64, kAbreast = 4, kMost = (128 << 10) / kLine;

  const char *aimed_ = nullptr, *next_ = nullptr;
  int64_t step_ = 0, abreast_ = 0, piece_ = 0, left_ = 0;
};

}  // namespace
}  // namespace core
