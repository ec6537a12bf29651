// Teams of threads, with any compiler.
//
// What an operation may count on, called alone or as part of a program:
//
// - Its code runs on one thread, the caller. `run_pieces(threads, count, body)` has pieces `0 .. count - 1` computed by
//   up to `threads` threads and returns when all of them are; the caller is thread 0. Each thread that takes part calls
//   `body(thread, pieces)` once, which takes pieces until there are none for it.
// - What the caller wrote before is seen by every thread, what the threads wrote is seen by the caller afterwards.
// - Inside a body `run_pieces` has all pieces computed by that thread.
//
// What a piece is depends on the operation's arguments alone, never on who comes or who takes what; so do its results.
// Pieces are dealt out in contiguous shares, one a thread, which keeps to its own from step to step; who has finished
// it takes from the ends of others'. So a thread that is slow, shares its core or has not come holds a round up by no
// more than the piece that it is at. No body may wait for another thread.
//
// Called alone, the threads are those of the OpenMP runtime of the process (torch's libgomp), in a parallel region. A
// program (program.cpp) has a crew: threads of our own, made for each thread that runs programs, as many as its largest
// one asks for, and ended with it. A region ends only when all of its threads have come to its end; of a crew nobody is
// waited for but who holds a piece. Between two rounds it waits some microseconds without leaving its cores, then
// asleep. A round is handed over in one cache line and joined with one a thread, a fraction of what a region costs. A
// thread that waits asks for memory that its next round will read (`Ahead`), so that memory never rests.
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

struct Seat;

// What is left of a round for one thread.
class Pieces {
 public:
  // All of `count` pieces, for a thread that is alone.
  explicit Pieces(int64_t count);

  // For the thread of seat `seat` of a team of so many, see parallel.cpp.
  Pieces(Seat* seats, int64_t seat, int64_t team, uint32_t round, int64_t count);

  // Takes a piece; false: there is none for this thread.
  bool take(int64_t* piece);

  // Takes part in the round: false if the thread's share has been taken already. Before the first piece is taken.
  bool enter();

  // How often something was taken from another thread's share.
  int64_t stolen() const { return stolen_; }

 private:
  int64_t steal();
  bool begin(int64_t group);

  Seat* seats_ = nullptr;
  int64_t seat_ = 0, team_ = 1;
  uint32_t round_ = 0;
  int64_t count_, groups_ = 1;   // pieces, and what they are taken in
  int64_t next_ = 0, last_ = 0;  // pieces that were taken and not given out
  int64_t looks_ = 0, looked_ = 0;  // at other shares
  int64_t stolen_ = 0;
};

using PiecesBody = void (*)(void* data, int64_t thread, Pieces& pieces);

// As `run_pieces` below: by the crew of the program that runs here, or else by a new parallel region.
void share_pieces(int64_t threads, int64_t count, PiecesBody body, void* data);

// Calls `work(data)` on the caller, with up to `threads - 1` other threads as its crew. Returns how many rounds were
// handed to the crew.
int64_t with_crew(int64_t threads, void (*work)(void* data), void* data);

// What teams have done since the library was loaded.
struct Counts {
  int64_t rounds, pieces, stolen;
};

Counts counts();

// For tests: the thread keeps its first piece until others have computed the rest of its share; -1: none does.
void hold_thread(int64_t thread);

// Whether run_pieces hands its body to a crew here, so that sharing pays for less work than otherwise.
bool has_crew();

// Memory in pieces next to each other, of which each thread of a team is going to read one contiguous share.
struct Ahead {
  const char* begin = nullptr;
  int64_t pieces = 0, piece_bytes = 0;
};

// Says what the crew reads next, apart from the round that it is handed before that.
void expect(const Ahead& ahead);

namespace {

// Calls `body(thread, pieces)` on each thread that takes part in computing `count` pieces.
template <typename Body>
void run_pieces(int64_t threads, int64_t count, const Body& body) {
  if (count <= 0) return;
  auto call = [](void* data, int64_t thread, Pieces& pieces) { (*static_cast<const Body*>(data))(thread, pieces); };
  share_pieces(threads, count, call, const_cast<Body*>(&body));
}

constexpr int64_t kCrewGain = 8;    // how much less work is worth a crew than a region
constexpr int64_t kMostParts = 8;    // pieces of a thread's share of plain work, as far as each is worth a thread

// Calls `body(begin, end)` on contiguous pieces of `0 .. count - 1`, each of at least `grain` items, or of a part of
// that where a crew is at hand.
template <typename Body>
void parallel_for(int64_t count, int64_t threads, int64_t grain, const Body& body) {
  if (count <= 0) return;
  if (grain > kCrewGain && has_crew()) grain /= kCrewGain;
  int64_t most = grain > 0 ? count / grain : count;
  if (threads > most) threads = most;
  if (threads <= 1) return body(0, count);
  int64_t each = most / threads;
  int64_t pieces = threads * (each < kMostParts ? each : kMostParts);
  run_pieces(threads, pieces, [&](int64_t, Pieces& mine) {
    for (int64_t piece; mine.take(&piece);) body(count * piece / pieces, count * (piece + 1) / pieces);
  });
}

}  // namespace
}  // namespace core
