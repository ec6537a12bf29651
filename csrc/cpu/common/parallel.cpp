// Teams of threads; see parallel.h.
#include "common/parallel.h"

#include <sched.h>

namespace core {
namespace {

thread_local Crew* current_crew = nullptr;

constexpr int kSpins = 4000;  // some 50 microseconds: longer than any operation of a decode step leaves a thread idle

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

struct Fork {
  TeamBody body;
  void* data;
  static void run(void* fork) {
    auto self = static_cast<Fork*>(fork);
    self->body(self->data, omp_get_thread_num(), omp_get_num_threads());
  }
};

}  // namespace

void Spin::wait() {
  if (++count_ < kSpins) {
    pause_briefly();
  } else {
    sched_yield();
  }
}

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

// Nobody reads `team_` but the first thread, so the others may serve before this.
void Crew::open(int64_t team) { team_ = team; }

void Crew::run(int64_t threads, TeamBody body, void* data) {
  active_ = threads < team_ ? threads : team_;
  body_ = body;
  data_ = data;
  pending_.store(team_ - 1, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  current_crew = nullptr;  // a body that asks for a team of its own runs alone
  body(data, 0, active_);
  current_crew = this;
  for (Spin spin; pending_.load(std::memory_order_acquire) != 0;) spin.wait();
}

void Crew::serve(int64_t thread) {
  for (uint32_t seen = 0;;) {
    for (Spin spin; round_.load(std::memory_order_acquire) == seen;) spin.wait();
    ++seen;
    if (body_ == nullptr) return;
    if (thread < active_) body_(data_, thread, active_);
    pending_.fetch_sub(1, std::memory_order_release);
  }
}

void Crew::dismiss() {
  body_ = nullptr;
  round_.fetch_add(1, std::memory_order_release);
}

Crew* Crew::current() { return current_crew; }

void Crew::lead(Crew* crew) { current_crew = crew; }

void fork_team(int64_t threads, TeamBody body, void* data) {
  if (GOMP_parallel == nullptr || omp_in_parallel()) return body(data, 0, 1);
  Fork fork{body, data};
  GOMP_parallel(&Fork::run, &fork, static_cast<unsigned>(threads), 0);
}

}  // namespace core
