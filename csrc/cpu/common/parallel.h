// Teams of threads on the OpenMP runtime of the process (torch's libgomp), with any compiler.
//
// Outside a program, `run_team` is a parallel region: the runtime's fork and join. Inside one (program/program.h) the
// team stands ready already and takes the work from a `Crew`, which costs less.
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

// Spins briefly, then lets others run: a thread that another process has displaced must not be waited for in vain.
class Spin {
 public:
  void wait();

 private:
  int count_ = 0;
};

// Where the threads of one team wait for each other.
class Barrier {
 public:
  void wait(int64_t team);

 private:
  alignas(64) std::atomic<int64_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> round_{0};
};

// Threads that wait for pieces of work from their first thread.
class Crew {
 public:
  // On the first thread, before anything else: `team` threads belong to the crew, itself included.
  void open(int64_t team);

  // On the first thread: runs body on `threads` threads at most, and returns when all are done.
  void run(int64_t threads, TeamBody body, void* data);

  // On every other thread, at any time: works until `dismiss`.
  void serve(int64_t thread);

  void dismiss();

  // The crew that the calling thread leads; null outside a program and inside a body.
  static Crew* current();
  static void lead(Crew* crew);

 private:
  int64_t team_ = 0, active_ = 0;
  TeamBody body_ = nullptr;
  void* data_ = nullptr;
  alignas(64) std::atomic<uint32_t> round_{0};
  alignas(64) std::atomic<int64_t> pending_{0};
};

// Calls body on each thread of a new parallel region.
void fork_team(int64_t threads, TeamBody body, void* data);

namespace {

// Calls `body(thread, team)` on each thread of a team; on the caller alone for one thread or inside another body.
template <typename Body>
void run_team(int64_t threads, const Body& body) {
  if (threads <= 1) return body(0, 1);
  auto call = [](void* data, int64_t thread, int64_t team) { (*static_cast<const Body*>(data))(thread, team); };
  void* data = const_cast<Body*>(&body);
  if (Crew* crew = Crew::current()) return crew->run(threads, call, data);
  fork_team(threads, call, data);
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
