// Teams of threads; see parallel.h.
#include "common/parallel.h"

#include "common/asking.h"
#include "common/neighbour.h"
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

void hold(const Seat& seat, uint32_t round) {
  while (!seat.share.empty(round)) rest();
}

// A region whose first thread works and hands rounds to the others. Whoever has not come yet, because it must be woken
// or its core is busy, is not waited for: others take its pieces.
class Crew {
 public:
  Crew(int64_t threads, void (*work)(void*), void* data) : threads_(threads), work_(work), work_data_(data) {}

  int64_t rounds() const { return round_; }
  void count_up() const;

  // What each thread of the region does.
  static void run(void* crew);

  // For the first thread: share_pieces and expect.
  void hand(int64_t threads, int64_t count, PiecesBody body, void* data);
  void expect(const Ahead& ahead) { expected_ = ahead; }

 private:
  void serve(int64_t seat);
  void announce(int64_t count, int64_t team);

  static constexpr int64_t kEnd = 255;  // instead of a team's size: the crew goes home

  // All that a thread reads to begin is one line. The ticket is new for each round: count of pieces (20 bits), size of
  // the team (12), number of the round (32). Only who has entered the round may read the rest: until it is done, the
  // round lasts; others may look while it is written.
  alignas(64) Signal ticket_;
  PiecesBody body_ = nullptr;
  void* data_ = nullptr;
  Ahead ahead_;
  // The first thread's own.
  alignas(64) int64_t threads_;
  void (*work_)(void*);
  void* work_data_;
  uint32_t round_ = 0;
  int64_t pieces_ = 0;
  Ahead expected_;
  Asking asking_;
  Seat seats_[kMostThreads];
};

// The crew that share_pieces may hand a body to: set on a crew's first thread, outside bodies.
thread_local Crew* own_crew = nullptr;

void Crew::run(void* self) {
  auto crew = static_cast<Crew*>(self);
  if (omp_get_thread_num() != 0) return crew->serve(omp_get_thread_num());
  own_crew = crew;
  crew->work_(crew->work_data_);
  own_crew = nullptr;
  crew->announce(0, kEnd);
}

void Crew::announce(int64_t count, int64_t team) {
  ticket_.set(static_cast<uint64_t>(count) << 44 | static_cast<uint64_t>(team) << 32 | ++round_);
}

void Crew::hand(int64_t threads, int64_t count, PiecesBody body, void* data) {
  int64_t team = threads < threads_ ? threads : threads_;
  own_crew = nullptr;
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
  own_crew = this;
}

void Crew::serve(int64_t seat) {
  Asking asking;
  Neighbour& neighbour = own_neighbour;
  for (uint64_t ticket = 0;;) {
    ticket = ticket_.wait(ticket, [&asking] { return asking.ask(); });
    int64_t team = ticket >> 32 & 0xfff;
    if (team == kEnd) return;
    if (seat >= team) continue;
    auto round = static_cast<uint32_t>(ticket);
    Pieces mine(seats_, seat, team, round, static_cast<int64_t>(ticket >> 44));
    if (!mine.enter()) continue;
    if (held_thread.load(std::memory_order_relaxed) == seat) hold(seats_[seat], round);
    Ahead ahead = ahead_;
    body_(data_, seat, mine);
    seats_[seat].stolen += mine.stolen();
    seats_[seat].done.set(round);
    asking.aim(ahead, seat, team);
    neighbour.give_way();
  }
}

void Crew::count_up() const {
  int64_t stolen = 0;
  for (int64_t seat = 0; seat < threads_; ++seat) stolen += seats_[seat].stolen;
  all_rounds.fetch_add(round_, std::memory_order_relaxed);
  all_pieces.fetch_add(pieces_, std::memory_order_relaxed);
  all_stolen.fetch_add(stolen, std::memory_order_relaxed);
}

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
    if (seat > 0 && held_thread.load(std::memory_order_relaxed) == seat) hold(self->seats[seat], 1);
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

bool Pieces::enter() {
  return begin(seats_[seat_].share.take_first(round_, share_of(groups_, team_, seat_)));
}

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

// From the end of the share of the nearest seat that has something left, after it and before it in turn.
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
    if (own_crew != nullptr) return own_crew->hand(threads, count, body, data);
    if (GOMP_parallel != nullptr && !omp_in_parallel()) return fork(threads, count, body, data);
  }
  Pieces all(count);
  body(data, 0, all);
}

int64_t with_crew(int64_t threads, void (*work)(void* data), void* data) {
  if (threads > kMostThreads) threads = kMostThreads;
  if (threads <= 1 || GOMP_parallel == nullptr || omp_in_parallel()) {
    work(data);
    return 0;
  }
  Crew crew(threads, work, data);
  GOMP_parallel(&Crew::run, &crew, static_cast<unsigned>(threads), 0);
  crew.count_up();
  return crew.rounds();
}

Counts counts() {
  auto get = [](const std::atomic<int64_t>& one) { return one.load(std::memory_order_relaxed); };
  return {get(all_rounds), get(all_pieces), get(all_stolen)};
}

void hold_thread(int64_t thread) { held_thread.store(thread, std::memory_order_relaxed); }

bool has_crew() { return own_crew != nullptr; }

void expect(const Ahead& ahead) {
  if (own_crew != nullptr) own_crew->expect(ahead);
}

}  // namespace core
