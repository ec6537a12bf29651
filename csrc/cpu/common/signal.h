// A number that threads wait on to change: for some microseconds without leaving their cores, asleep from then on.
//
// Work is cut so evenly that what is waited for usually comes within a microsecond. If it does not, its thread has lost
// its core to another process, or has much to do alone; to spin on would take the core from whoever is waited for.
#pragma once

#include <atomic>

#include "common/types.h"

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <sched.h>
#endif

namespace core {

class Signal {
 public:
  uint64_t get() const { return value_.load(std::memory_order_acquire); }

  // What was written before is seen by whoever sees the new value, which differs from the old one in its low 32 bits.
  void set(uint64_t value) {
    value_.store(value, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) wake();
  }

  // Returns the first value other than `old`. Meanwhile calls `idle()` until it returns false: there is nothing to do.
  template <typename Idle>
  uint64_t wait(uint64_t old, const Idle& idle) {
    for (int looks = 0;;) {
      uint64_t value = get();
      if (value != old) return value;
      if (idle()) continue;
      if (++looks > kLooks + kPauses) {
        sleep(old);
      } else if (looks > kLooks) {
        pause();
      }
    }
  }

 private:
  static constexpr int kLooks = 64;     // at once, before a waiting thread slows down
  static constexpr int kPauses = 600;  // some 30 microseconds, before it sleeps

  static void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
  }

  // Either the value is seen to have changed before, or whoever changes it sees a sleeper.
  void sleep(uint64_t old) {
#if defined(__linux__)
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    syscall(SYS_futex, low_half(), FUTEX_WAIT_PRIVATE, static_cast<uint32_t>(old), nullptr, nullptr, 0);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
#else
    (void)old;
    sched_yield();
#endif
  }

  void wake() {
#if defined(__linux__)
    syscall(SYS_futex, low_half(), FUTEX_WAKE_PRIVATE, 0x7fffffff, nullptr, nullptr, 0);
#endif
  }

  // What the system looks at: 32 bits.
  void* low_half() {
    return reinterpret_cast<char*>(&value_) + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 4 : 0);
  }

  std::atomic<uint64_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
};
static_assert(sizeof(std::atomic<uint64_t>) == 8, "the system looks at one half of the value");

}  // namespace core
