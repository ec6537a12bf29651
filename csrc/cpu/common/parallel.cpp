// Teams of threads; see parallel.h.
#include "common/parallel.h"

#include <sched.h>

namespace core {
namespace {

constexpr int kSpins = 4000;  // some 50 microseconds

// Spins briefly, then lets others run: a thread that another process has displaced must not be waited for in vain.
class Spin {
 public:
  void wait() {
    if (++count_ > kSpins) {
      sched_yield();
      return;
    }
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
  }

 private:
  int count_ = 0;
};

struct Fork {
  TeamBody body;
  void* data;
  static void run(void* fork) {
    auto self = static_cast<Fork*>(fork);
    self->body(self->data, omp_get_thread_num(), omp_get_num_threads());
  }
};

}  // namespace

void Barrier::wait(int64_t team) {
  if (team <= 1) return;
  uint32_t round = round_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == team) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);
    return;
  }
  for (Spin spin; round_.load(std::memory_order_acquire) == round;) spin.wait();
}

void fork_team(int64_t threads, TeamBody body, void* data) {
  if (GOMP_parallel == nullptr || omp_in_parallel()) return body(data, 0, 1);
  Fork fork{body, data};
  GOMP_parallel(&Fork::run, &fork, static_cast<unsigned>(threads), 0);
}

}  // namespace core
