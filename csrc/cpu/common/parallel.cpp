// Teams of threads; see parallel.h.
#include "common/parallel.h"

#include "common/crew.h"

namespace core {
namespace {

// The crew of this thread, from its first program on.
thread_local CrewOfThread crew_of_thread;

// The crew that share_pieces may hand pieces to, outside bodies: that of a thread that runs a program.
thread_local Crew* own_crew = nullptr;

bool in_region() { return omp_in_parallel != nullptr && omp_in_parallel(); }

// A parallel region for one round.
struct Fork {
  PiecesBody body;
  void* data;
  int64_t team, count;
  Seat seats[kMostThreads];

  static void run(void* fork) {
    auto self = static_cast<Fork*>(fork);
    int64_t seat = omp_get_thread_num();
    Pieces mine(self->seats, seat, self->team, 1, self->count);
    if (seat >= self->team || (seat > 0 && !mine.enter())) return;
    if (seat > 0) hold_if_asked(self->seats[seat], seat, 1);
    self->body(self->data, seat, mine);
    all_stolen.fetch_add(mine.stolen(), std::memory_order_relaxed);
  }
};

void fork(int64_t threads, int64_t count, PiecesBody body, void* data) {
  if (threads > kMostThreads) threads = kMostThreads;
  Fork fork{body, data, threads, count, {}};
  GOMP_parallel(&Fork::run, &fork, static_cast<unsigned>(threads), 0);
  all_rounds.fetch_add(1, std::memory_order_relaxed);
  all_pieces.fetch_add(count, std::memory_order_relaxed);
}

// Pieces that are taken together, where there are very many.
int64_t group_of(int64_t count) { return ceil_div(count, kMostPieces); }

}  // namespace

Pieces::Pieces(int64_t count) : count_(count), last_(count) {}

Pieces::Pieces(Seat* seats, int64_t seat, int64_t team, uint32_t round, int64_t count)
    : seats_(seats), seat_(seat), team_(team), round_(round), count_(count), groups_(ceil_div(count, group_of(count))) {
  looks_ = seat == 0 || team - 1 < kLooks ? team - 1 : kLooks;
}

bool Pieces::enter() { return begin(seats_[seat_].share.take_first(round_, share_of(groups_, team_, seat_))); }

bool Pieces::take(int64_t* piece) {
  if (next_ == last_ && !(seats_ != nullptr && (enter() || begin(steal())))) return false;
  *piece = next_++;
  return true;
}

bool Pieces::begin(int64_t group) {
  if (group < 0) return false;
  int64_t each = group_of(count_);
  next_ = group * each;
  last_ = next_ + each < count_ ? next_ + each : count_;
  return true;
}

// From the end of the share of the nearest seat that has something left, after this one and before it in turn.
int64_t Pieces::steal() {
  for (; looked_ < looks_; ++looked_) {
    int64_t away = looked_ / 2 + 1, from = (seat_ + (looked_ % 2 == 0 ? away : team_ - away)) % team_;
    int64_t group = seats_[from].share.take_last(round_, share_of(groups_, team_, from));
    if (group < 0) continue;
    ++stolen_;
    return group;
  }
  return -1;
}

void share_pieces(int64_t threads, int64_t count, PiecesBody body, void* data) {
  if (threads > count) threads = count;
  if (threads > 1 && count <= kMostCount) {
    if (has_crew()) {
      in_body = true;
      own_crew->hand(threads, count, body, data);
      in_body = false;
      return;
    }
    if (GOMP_parallel != nullptr && !in_body && !in_region()) return fork(threads, count, body, data);
  }
  Pieces all(count);
  body(data, 0, all);
}

int64_t with_crew(int64_t threads, void (*work)(void* data), void* data) {
  if (threads > kMostThreads) threads = kMostThreads;
  if (threads <= 1 || own_crew != nullptr || in_body || in_region()) {
    work(data);
    return 0;
  }
  Crew& crew = crew_of_thread.get(threads);
  own_crew = &crew;
  work(data);
  own_crew = nullptr;
  return crew.end_program();
}

Counts counts() {
  auto get = [](const std::atomic<int64_t>& one) { return one.load(std::memory_order_relaxed); };
  return {get(all_rounds), get(all_pieces), get(all_stolen)};
}

void hold_thread(int64_t thread) { held_thread.store(thread, std::memory_order_relaxed); }

bool has_crew() { return own_crew != nullptr && !in_body; }

void expect(const Ahead& ahead) {
  if (own_crew != nullptr) own_crew->expect(ahead);
}

}  // namespace core
