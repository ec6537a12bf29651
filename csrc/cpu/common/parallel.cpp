// Teams of threads; see parallel.h.
#include "common/parallel.h"

namespace core {
namespace {

constexpr int64_t kMostThreads = 254;

// Asks for the beginning of a thread's share of what is read next, line by line, in the order of the products' tiles:
// so many pieces abreast.
class Asking {
 public:
  // Begins anew where `ahead` is other memory than before.
  void aim(const Ahead& ahead, int64_t thread, int64_t team) {
    if (ahead.begin == aimed_) return;
    aimed_ = ahead.begin;
    int64_t first = ahead.pieces * thread / team, last = ahead.pieces * (thread + 1) / team;
    abreast_ = last - first < kAbreast ? last - first : kAbreast;
    step_ = ahead.piece_bytes;
    next_ = ahead.begin + first * step_;
    int64_t lines = abreast_ * step_ / kLine;
    left_ = lines < kMost ? lines : kMost;
    piece_ = 0;
  }

  // Returns whether there was anything left to ask for.
  bool ask() {
    if (left_ <= 0) return false;
    for (int i = 0; i < kAtOnce; ++i) {
      __builtin_prefetch(next_ + piece_ * step_, 0, 2);
      if (++piece_ < abreast_) continue;
      piece_ = 0;
      next_ += kLine;
    }
    left_ -= kAtOnce;
    return true;
  }

 private:
  static constexpr int kAtOnce = 2;  // lines between two looks for the next body
  static constexpr int64_t kLine = 64, kAbreast = 4, kMost = (128 << 10) / kLine;

  const char *aimed_ = nullptr, *next_ = nullptr;
  int64_t step_ = 0, abreast_ = 0, piece_ = 0, left_ = 0;
};

// A region whose first thread works and hands bodies to the others. Who has not come yet, because it must be woken or
// its core is busy, is not waited for: a body goes to those who are there, who are numbered as they came.
class Crew {
 public:
  Crew(void (*work)(void*), void* data) : work_(work), work_data_(data) {}

  int64_t handed() const { return handed_; }

  // What each thread of the region does.
  static void run(void* crew);

  // For the first thread: fork_team and expect.
  void hand(int64_t threads, TeamBody body, void* data);
  void expect(const Ahead& ahead) { expected_ = ahead; }

 private:
  void serve(int64_t seat);
  void announce(int64_t team);

  static constexpr int64_t kEnd = 255;  // instead of a team's size: the crew goes home

  // All that a thread reads to begin is one line. The word is new for each body and has the team's size in its last
  // byte. Only who takes part may read the rest: it stays until they are done, others may look while it is written.
  alignas(64) Signal word_;
  TeamBody body_ = nullptr;
  void* data_ = nullptr;
  Ahead ahead_;
  // The first thread's own.
  alignas(64) void (*work_)(void*);
  void* work_data_;
  int64_t handed_ = 0;
  Ahead expected_;
  Asking asking_;
  struct alignas(64) Seat {
    Signal done;  // the last word whose body this thread has finished
  };
  Seat seats_[kMostThreads];
  alignas(64) std::atomic<int64_t> present_{1};  // seats that are taken
};

// The crew that run_team may hand a body to: set on a crew's first thread, outside bodies.
thread_local Crew* own_crew = nullptr;

void Crew::run(void* self) {
  auto crew = static_cast<Crew*>(self);
  if (omp_get_thread_num() != 0) return crew->serve(crew->present_.fetch_add(1, std::memory_order_acq_rel));
  own_crew = crew;
  crew->work_(crew->work_data_);
  own_crew = nullptr;
  crew->announce(kEnd);
}

void Crew::announce(int64_t team) {
  uint32_t number = word_.get() >> 8;
  word_.set((number + 1) << 8 | static_cast<uint32_t>(team));
}

void Crew::hand(int64_t threads, TeamBody body, void* data) {
  int64_t present = present_.load(std::memory_order_acquire);
  int64_t team = threads < present ? threads : present;
  own_crew = nullptr;
  if (team > 1) {
    body_ = body;
    data_ = data;
    ahead_ = expected_;
    announce(team);
    ++handed_;
  }
  body(data, 0, team);
  uint32_t word = word_.get();
  asking_.aim(expected_, 0, team);
  for (int64_t thread = 1; thread < team; ++thread) {
    Signal& done = seats_[thread].done;
    uint32_t before = done.get();
    if (before != word) done.wait(before, [this] { return asking_.ask(); });
  }
  own_crew = this;
}

void Crew::serve(int64_t seat) {
  Asking asking;
  for (uint32_t word = 0;;) {
    word = word_.wait(word, [&asking] { return asking.ask(); });
    int64_t team = word & 255;
    if (team == kEnd) return;
    if (seat >= team) continue;
    Ahead ahead = ahead_;
    body_(data_, seat, team);
    seats_[seat].done.set(word);
    asking.aim(ahead, seat, team);
  }
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

void Barrier::wait(int64_t team) {
  if (team <= 1) return;
  uint32_t round = round_.get();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == team) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.set(round + 1);
  } else {
    round_.wait(round);
  }
}

void fork_team(int64_t threads, TeamBody body, void* data) {
  if (own_crew != nullptr) return own_crew->hand(threads, body, data);
  if (GOMP_parallel == nullptr || omp_in_parallel()) return body(data, 0, 1);
  Fork fork{body, data};
  GOMP_parallel(&Fork::run, &fork, static_cast<unsigned>(threads), 0);
}

int64_t with_crew(int64_t threads, void (*work)(void* data), void* data) {
  if (threads > kMostThreads) threads = kMostThreads;
  if (threads <= 1 || GOMP_parallel == nullptr || omp_in_parallel()) {
    work(data);
    return 0;
  }
  Crew crew(work, data);
  GOMP_parallel(&Crew::run, &crew, static_cast<unsigned>(threads), 0);
  return crew.handed();
}

bool has_crew() { return own_crew != nullptr; }

void expect(const Ahead& ahead) {
  if (own_crew != nullptr) own_crew->expect(ahead);
}

}  // namespace core
