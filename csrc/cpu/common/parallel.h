// Teams of threads on the OpenMP runtime of the process (torch's libgomp), with any compiler.
#pragma once

#include <atomic>

#include "common/types.h"

extern "C" {
// libgomp's stable entries. Weak: without a runtime everything runs on the calling thread.
__attribute__((weak)) void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
__attribute__((weak)) int omp_get_thread_num();
__attribute__((weak)) int omp_get_num_threads();
__attribute__((weak)) int omp_in_parallel();
}

namespace core {

using TeamBody = void (*)(void* data, int64_t thread, int64_t team);

// Where the threads of one team wait for each other.
class Barrier {
 public:
  void wait(int64_t team);

 private:
  alignas(64) std::atomic<int64_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> round_{0};
};

// Calls body on each thread of a new parallel region; on the caller alone inside another.
void fork_team(int64_t threads, TeamBody body, void* data);

namespace {

// Calls `body(thread, team)` on each thread of a team; on the caller alone for one thread or inside a team.
template <typename Body>
void run_team(int64_t threads, const Body& body) {
  if (threads <= 1) return body(0, 1);
  auto call = [](void* data, int64_t thread, int64_t team) { (*static_cast<const Body*>(data))(thread, team); };
  fork_team(threads, call, const_cast<Body*>(&body));
}

// Calls `body(begin, end)` on one contiguous share of `0 .. count - 1` per thread, each of at least `grain` items.
template <typename Body>
void parallel_for(int64_t count, int64_t threads, int64_t grain, const Body& body) {
  int64_t most = grain > 0 ? count / grain : count;
  if (threads > most) threads = most;
  if (count <= 0) return;
  run_team(threads, [&](int64_t thread, int64_t team) {
    int64_t begin = count * thread / team, end = count * (thread + 1) / team;
    if (begin < end) body(begin, end);
  });
}

}  // namespace
}  // namespace core
