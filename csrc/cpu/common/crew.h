// Threads that wait for the rounds of the programs of one thread; for parallel.cpp.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "common/asking.h"
#include "common/shares.h"

namespace core {

// One thread's place in a team, in a line of its own.
struct alignas(64) Seat {
  Share share;
  Signal done;         // the last round that its thread entered and has finished
  int64_t stolen = 0;  // pieces that its thread took from other shares
};

namespace {

constexpr int64_t kMostThreads = 254, kMostCount = (1 << 20) - 1;
constexpr int64_t kLooks = 2;  // seats beside its own at which a thread looks for work; the first thread looks at all

// Since the library was loaded.
std::atomic<int64_t> all_rounds{0}, all_pieces{0}, all_stolen{0};

// The thread that keeps its first piece until others have computed the rest of its share: for tests.
std::atomic<int64_t> held_thread{-1};

void hold_if_asked(const Seat& seat, int64_t number, uint32_t round) {
  if (held_thread.load(std::memory_order_relaxed) != number) return;
  while (!seat.share.empty(round)) std::this_thread::yield();
}

// Whether this thread computes pieces, or is a crew's: what they share they do alone.
thread_local bool in_body = false;

// The crew of one thread, which hands it rounds. Whoever has not come yet, because it must be woken or its core is busy,
// is not waited for: others take its pieces, in this round or in all that are left of the program.
class Crew {
 public:
  Crew() = default;
  ~Crew();

  // Has at least so many threads, the first one included. Begins a program.
  void begin_program(int64_t threads);

  // Returns how many rounds the program had.
  int64_t end_program();

  // For the first thread: share_pieces and expect.
  void hand(int64_t threads, int64_t count, PiecesBody body, void* data);
  void expect(const Ahead& ahead) { expected_ = ahead; }

 private:
  struct Member {
    Crew* crew;
    int64_t seat;
    pthread_t thread;
  };

  static void* serve(void* member);
  void serve(int64_t seat);
  bool start(Member& member);
  void announce(int64_t count, int64_t team);
  void freshen();

  static constexpr int64_t kEnd = 255;              // instead of a team's size: the crew goes home
  static constexpr uint32_t kFresh = 1u << 30;      // rounds after which seats are told of the present one, see Share

  // All that a thread reads to begin is one line. The ticket is new for each round: count of pieces (20 bits), size of
  // the team (12), number of the round (32). Only who has entered the round may read the rest: until it is done, the
  // round lasts; others may look while it is written.
  alignas(64) Signal ticket_;
  PiecesBody body_ = nullptr;
  void* data_ = nullptr;
  Ahead ahead_;
  // The first thread's own.
  alignas(64) int64_t threads_ = 1;
  uint32_t round_ = 0, begun_ = 0, fresh_ = 0;
  int64_t pieces_ = 0, stolen_ = 0;
  Ahead expected_;
  Asking asking_;
  Member members_[kMostThreads];
  Seat seats_[kMostThreads];
};

Crew::~Crew() {
  announce(0, kEnd);
  for (int64_t seat = 1; seat < threads_; ++seat) pthread_join(members_[seat].thread, nullptr);
}

void Crew::begin_program(int64_t threads) {
  for (; threads_ < threads; ++threads_) {
    members_[threads_] = {this, threads_, {}};
    if (!start(members_[threads_])) break;
  }
  begun_ = round_;
  if (round_ - fresh_ >= kFresh) freshen();
}

// A signal is for a thread that can do something about it.
bool Crew::start(Member& member) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = pthread_create(&member.thread, nullptr, serve, &member) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

void Crew::freshen() {
  for (Seat& seat : seats_) {
    seat.share.skip_to(round_);
    seat.done.set(round_);
  }
  fresh_ = round_;
}

int64_t Crew::end_program() {
  int64_t stolen = 0;
  for (int64_t seat = 0; seat < threads_; ++seat) stolen += seats_[seat].stolen;
  uint32_t rounds = round_ - begun_;
  all_rounds.fetch_add(rounds, std::memory_order_relaxed);
  all_pieces.fetch_add(pieces_, std::memory_order_relaxed);
  all_stolen.fetch_add(stolen - stolen_, std::memory_order_relaxed);
  pieces_ = 0;
  stolen_ = stolen;
  return rounds;
}

void Crew::announce(int64_t count, int64_t team) {
  ticket_.set(static_cast<uint64_t>(count) << 44 | static_cast<uint64_t>(team) << 32 | ++round_);
}

void Crew::hand(int64_t threads, int64_t count, PiecesBody body, void* data) {
  int64_t team = threads < threads_ ? threads : threads_;
  body_ = body;
  data_ = data;
  ahead_ = expected_;
  announce(count, team);
  Pieces mine(seats_, 0, team, round_, count);
  body(data, 0, mine);
  asking_.aim(expected_, 0, team);
  pieces_ += count;
  seats_[0].stolen += mine.stolen();
  for (int64_t seat = 1; seat < team; ++seat) {
    if (!seats_[seat].share.entered(round_)) continue;
    Signal& done = seats_[seat].done;
    uint64_t before = done.get();
    if (before != round_) done.wait(before, [this] { return asking_.ask(); });
  }
}

void* Crew::serve(void* member) {
  auto self = static_cast<Member*>(member);
  in_body = true;
  self->crew->serve(self->seat);
  return nullptr;
}

void Crew::serve(int64_t seat) {
  Asking asking;
  for (uint64_t ticket = 0;;) {
    ticket = ticket_.wait(ticket, [&asking] { return asking.ask(); });
    int64_t team = ticket >> 32 & 0xfff;
    if (team == kEnd) return;
    if (seat >= team) continue;
    auto round = static_cast<uint32_t>(ticket);
    Pieces mine(seats_, seat, team, round, static_cast<int64_t>(ticket >> 44));
    if (!mine.enter()) continue;
    hold_if_asked(seats_[seat], seat, round);
    Ahead ahead = ahead_;
    body_(data_, seat, mine);
    seats_[seat].stolen += mine.stolen();
    seats_[seat].done.set(round);
    asking.aim(ahead, seat, team);
  }
}

// Ends with its thread.
class CrewOfThread {
 public:
  ~CrewOfThread() {
    if (process_ == getpid()) delete crew_;
  }

  // The crew, with at least so many threads. The child of a fork begins without those of its parent.
  Crew& get(int64_t threads) {
    if (crew_ == nullptr || process_ != getpid()) {
      crew_ = new Crew;
      process_ = getpid();
    }
    crew_->begin_program(threads);
    return *crew_;
  }

 private:
  Crew* crew_ = nullptr;
  pid_t process_ = 0;
};

}  // namespace
}  // namespace core
