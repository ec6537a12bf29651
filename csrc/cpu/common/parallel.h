// Teams of threads on the OpenMP runtime of the process (torch's libgomp), with any compiler.
//
// What an operation may count on, called alone or as part of a program:
//
// - Its code runs on one thread, the caller. `run_team(threads, body)` calls `body(thread, team)` once on each of
//   `team <= threads` threads, all of them at the same time, and returns when all of them have; the caller is thread 0.
// - What the caller wrote before is seen by every thread, what the threads wrote is seen by the caller afterwards.
// - Inside a body `run_team` runs its body on that thread alone.
//
// Called alone, the threads are those of a parallel region of its own. In a program (program.cpp) one region is around
// all operations: its first thread runs them, the others are the crew, which waits between two bodies without leaving
// its cores. A body is handed over in one cache line and joined with one a thread, a fraction of what a region costs. A
// thread that waits asks for memory that its next body will read (`Ahead`), so that memory never rests.
#pragma once

#include <atomic>

#include "common/signal.h"
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
  alignas(64) Signal round_;
};

// Calls body on each thread of a team: the crew of the program that runs here, or else a new parallel region.
void fork_team(int64_t threads, TeamBody body, void* data);

// Calls `work(data)` on the caller, with up to `threads - 1` other threads as its crew. Returns how many bodies were
// handed to the crew.
int64_t with_crew(int64_t threads, void (*work)(void* data), void* data);

// Whether run_team hands its body to a crew here, so that sharing pays for less work than otherwise.
bool has_crew();

// Memory in pieces next to each other, of which each thread of a team is going to read one contiguous share.
struct Ahead {
  const char* begin = nullptr;
  int64_t pieces = 0, piece_bytes = 0;
};

// Says what the crew reads next, apart from the body that it is handed before that.
void expect(const Ahead& ahead);

namespace {

// Calls `body(thread, team)` on each thread of a team; on the caller alone for one thread or inside a team.
template <typename Body>
void run_team(int64_t threads, const Body& body) {
  if (threads <= 1) return body(0, 1);
  auto call = [](void* data, int64_t thread, int64_t team) { (*static_cast<const Body*>(data))(thread, team); };
  fork_team(threads, call, const_cast<Body*>(&body));
}

constexpr int64_t kCrewGain = 8;  // how much less work is worth a crew than a region

// Calls `body(begin, end)` on one contiguous share of `0 .. count - 1` per thread, each of at least `grain` items, or of
// a part of that where a crew is at hand.
template <typename Body>
void parallel_for(int64_t count, int64_t threads, int64_t grain, const Body& body) {
  if (grain > kCrewGain && has_crew()) grain /= kCrewGain;
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
