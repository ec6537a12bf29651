// Shares of the pieces of a round (one hand-out of work to a team). For parallel.cpp.
#pragma once

#include <atomic>

#include "common/types.h"

namespace core {

constexpr int64_t kMostPieces = (1 << 15) - 1;  // of a round

// Pieces `first .. last - 1`.
struct Span {
  int64_t first, last;
};

// What a seat's share is when a round begins: even, contiguous, none empty if there are as many pieces as seats.
inline Span share_of(int64_t pieces, int64_t seats, int64_t seat) {
  return {pieces * seat / seats, pieces * (seat + 1) / seats};
}

// The pieces of a share that nobody has taken. Its thread takes the first, others the last.
//
// Nothing is reset between two rounds: whoever comes to a share first in a round begins it anew. So a thread that is
// not there is not needed, and one that comes late finds its share empty, or of a later round, and takes nothing.
class Share {
 public:
  // Takes a piece for the share's own thread, which has entered the round from its first one on; -1: none is left.
  int64_t take_first(uint32_t round, Span whole) { return take<true>(round, whole); }

  // Takes a piece for another thread; -1: none is left.
  int64_t take_last(uint32_t round, Span whole) { return take<false>(round, whole); }

  // Whether its thread has taken a piece in this round. Once none is left this does not change any more.
  bool entered(uint32_t round) const {
    uint64_t now = state_.load(std::memory_order_acquire);
    return round_of(now) == round && (now & kEntered) != 0;
  }

  // Forgets all rounds up to this one, none of which has anything left.
  void skip_to(uint32_t round) { state_.store(begun(round, {0, 0}), std::memory_order_release); }

  // Whether all of the share has been taken.
  bool empty(uint32_t round) const {
    uint64_t now = state_.load(std::memory_order_acquire);
    return round_of(now) == round && first_of(now) == last_of(now);
  }

 private:
  static constexpr uint64_t kEntered = 1 << 30, kBits = 15, kMask = kMostPieces;  // round, entered, last, first

  static uint32_t round_of(uint64_t state) { return static_cast<uint32_t>(state >> 32); }
  static int64_t first_of(uint64_t state) { return static_cast<int64_t>(state & kMask); }
  static int64_t last_of(uint64_t state) { return static_cast<int64_t>(state >> kBits & kMask); }

  static uint64_t begun(uint32_t round, Span whole) {
    return static_cast<uint64_t>(round) << 32 | static_cast<uint64_t>(whole.last) << kBits |
           static_cast<uint64_t>(whole.first);
  }

  template <bool own>
  int64_t take(uint32_t round, Span whole) {
    for (uint64_t now = state_.load(std::memory_order_acquire);;) {
      int32_t ahead = static_cast<int32_t>(round_of(now) - round);
      if (ahead > 0) return -1;  // whoever takes for an earlier round has been overtaken
      uint64_t next = ahead < 0 ? begun(round, whole) : now;
      if (first_of(next) == last_of(next)) return -1;
      int64_t piece = own ? first_of(next) : last_of(next) - 1;
      next = own ? (next + 1) | kEntered : next - (uint64_t{1} << kBits);
      if (state_.compare_exchange_weak(now, next, std::memory_order_acq_rel, std::memory_order_acquire)) return piece;
    }
  }

  std::atomic<uint64_t> state_{0};
};

}  // namespace core
