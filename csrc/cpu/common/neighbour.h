// Another process that wants the core of a thread; for parallel.cpp.
//
// A thread that the system takes off its core while it holds a piece holds its team up until it is back, milliseconds
// later. The neighbour gets its time in any case, so where there is one, a thread gives way of its own accord while it
// holds nothing: the others then do its share until it is back.
#pragma once

#include <chrono>

#include "common/types.h"

#if defined(__linux__)
#include <sched.h>
#include <sys/resource.h>
#endif

namespace core {
namespace {

inline int64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Leaves the core to whoever else wants it.
inline void rest() {
#if defined(__linux__)
  sched_yield();
#endif
}

class Neighbour {
 public:
  // For a thread that holds nothing, between two rounds.
  void give_way() {
    if (wanted_ == 0 && ++rounds_ % kSeldom != 0) return;
    int64_t now = nanoseconds();
    if (now - looked_ > kLong && was_taken_off()) wanted_ = kTries;
    looked_ = now;
    if (wanted_ == 0 || now - gave_ < kSpacing) return;
    rest();
    gave_ = looked_ = nanoseconds();
    wanted_ = gave_ - now > kLong ? kTries : wanted_ - 1;
  }

 private:
  static constexpr int kSeldom = 16;             // rounds from one look to the next where there is no neighbour
  static constexpr int64_t kLong = 200'000;      // what a thread without its core does not see of the time, at least
  static constexpr int64_t kSpacing = 500'000;   // from one time of giving way to the next
  static constexpr int kTries = 100;             // times of giving way to nobody, until there is no neighbour any more

  // Whether the system has taken the thread off its core since the last call.
  bool was_taken_off() {
#if defined(__linux__)
    rusage usage;
    if (getrusage(RUSAGE_THREAD, &usage) != 0) return false;
    bool more = usage.ru_nivcsw != switches_;
    switches_ = usage.ru_nivcsw;
    return more;
#else
    return false;
#endif
  }

  int64_t looked_ = 0, gave_ = 0, switches_ = 0;
  int rounds_ = 0, wanted_ = 0;
};

thread_local Neighbour own_neighbour;

}  // namespace
}  // namespace core
