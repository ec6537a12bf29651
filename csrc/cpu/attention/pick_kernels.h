// Picked positions for the instruction set of the including file, in namespace core::CORE_VARIANT.
#include "attention/best.h"
#include "attention/copies.h"
#include "attention/latent_copies.h"
#if defined(__AMX_BF16__)
#include "attention/tiles.h"
#endif
#include "attention/index_scores.h"
#include "attention/splits.h"
#include "common/parallel.h"

namespace core {
namespace CORE_VARIANT {
namespace {

inline int64_t queries_of(const core_pick_args& a, int64_t row) {
  return a.query_starts[row + 1] - a.query_starts[row];
}

// Index keys of a row, and those that a query at a position sees.
inline int64_t keys_of(const core_pick_args& a, int64_t row) { return a.seq_lens[row] / a.ratio; }
inline int64_t sees(const core_pick_args& a, int64_t position) { return (position + 1) / a.ratio; }

inline bool is_limited(const core_pick_args& a, int64_t row) { return is_picked(keys_of(a, row), a.picks); }

// Units of a row: ranges of the positions of a decode row, or a few queries.
inline int64_t pick_units(const core_pick_args& a, const Plan& plan, int64_t row) {
  int64_t queries = queries_of(a, row);
  if (queries == 1 && is_limited(a, row)) return splits_over(plan, keys_of(a, row));
  return ceil_div(queries, kPickQueries);
}

// Unit `unit` of a row. Later queries see more: they come first.
inline Range pick_unit(const core_pick_args& a, const Plan& plan, int64_t row, int64_t unit) {
  int64_t queries = queries_of(a, row), length = keys_of(a, row);
  if (queries == 1 && is_limited(a, row)) {
    int64_t splits = splits_over(plan, length);
    auto cut = [&](int64_t i) { return i == splits ? length : length * i / splits / kCut * kCut; };
    return {row, 0, 0, 1, cut(unit), cut(unit + 1), splits > 1 ? row * plan.splits + unit : -1};
  }
  int64_t begin = (ceil_div(queries, kPickQueries) - 1 - unit) * kPickQueries;
  int64_t end = begin + kPickQueries < queries ? begin + kPickQueries : queries;
  return {row, 0, begin, end, 0, sees(a, a.seq_lens[row] - queries + end - 1), -1};
}

// Writes the picks of the query at `token`.
inline void write_picks(const core_pick_args& a, int64_t token, const Best& best) {
  int32_t* out = a.out + token * a.picks;
  std::memcpy(out, best.positions(), static_cast<size_t>(best.count()) * 4);
  for (int64_t i = best.count(); i < a.picks; ++i) out[i] = -1;
}

// Writes what a range of a decode row leaves.
inline void write_candidates(const core_pick_args& a, char* to, const Best& best) {
  int64_t count = best.count();
  std::memcpy(to, &count, sizeof(count));
  std::memcpy(to + kAlign, best.scores(), static_cast<size_t>(count) * 4);
  std::memcpy(to + partial_positions(a.picks), best.positions(), static_cast<size_t>(count) * 4);
}

// The picks of a query that sees all of `count` positions.
inline void write_all(const core_pick_args& a, int64_t token, int64_t count) {
  int32_t* out = a.out + token * a.picks;
  for (int64_t i = 0; i < a.picks; ++i) out[i] = i < count ? static_cast<int32_t>(i) : -1;
}

// A unit's queries from `begin` on, which cannot see all positions, and their candidates.
template <typename P>
void pick_best(const core_pick_args& a, const Range& range, int64_t begin, char* partials, char* scratch) {
  PickLayout layout = pick_layout(a);
  IndexScores<P> index{a, layout, scratch, range.row};
  int64_t first_token = a.query_starts[range.row], before = a.seq_lens[range.row] - queries_of(a, range.row);
  int64_t queries = range.end - begin;
  Best best[kPickQueries];
  for (int64_t i = 0; i < queries; ++i) {
    index.load(first_token + begin + i, i);
    best[i].begin(scratch + layout.candidates + i * layout.next_candidates, a.picks);
  }
  for (int64_t first = range.first_key; first < range.last_key; first += kTileKeys) {
    int64_t seen = range.last_key - first < kTileKeys ? range.last_key - first : kTileKeys;
    index.copy(first, seen);
    for (int64_t i = 0; i < queries; ++i) {
      int64_t own = sees(a, before + begin + i) - first;
      if (own <= 0) continue;
      index.score(first_token + begin + i, i, seen);
      best[i].take(index.scores(), own < seen ? own : seen, first);
    }
  }
  P::leave();
  for (int64_t i = 0; i < queries; ++i) {
    best[i].cut();
    range.partial < 0 ? write_picks(a, first_token + begin + i, best[i])
                      : write_candidates(a, partials + range.partial * pick_partial_bytes(a.picks), best[i]);
  }
}

template <typename P>
void pick_range(const core_pick_args& a, const Range& range, char* partials, char* scratch) {
  int64_t queries = queries_of(a, range.row), before = a.seq_lens[range.row] - queries, begin = range.begin;
  bool all = !is_limited(a, range.row);
  for (; begin < range.end && (all || sees(a, before + begin) <= a.picks); ++begin) {
    write_all(a, a.query_starts[range.row] + begin, sees(a, before + begin));
  }
  if (begin < range.end) pick_best<P>(a, range, begin, partials, scratch);
}

// The best of what the ranges of a decode row have left.
inline void merge_picks(const core_pick_args& a, const Plan& plan, int64_t row, const char* partials, char* scratch) {
  Best best;
  best.begin(scratch + pick_layout(a).candidates, a.picks);
  int64_t each = pick_partial_bytes(a.picks), splits = splits_over(plan, keys_of(a, row));
  for (int64_t split = 0; split < splits; ++split) {
    const char* from = partials + (row * plan.splits + split) * each;
    auto scores = reinterpret_cast<const float*>(from + kAlign);
    auto positions = reinterpret_cast<const int32_t*>(from + partial_positions(a.picks));
    int64_t count;
    std::memcpy(&count, from, sizeof(count));
    for (int64_t i = 0; i < count; i += kTileKeys) {
      best.take(scores + i, count - i < kTileKeys ? count - i : kTileKeys, positions + i);
    }
  }
  best.cut();
  write_picks(a, a.query_starts[row], best);
}

inline bool is_split(const core_pick_args& a, const Plan& plan, int64_t row) {
  return queries_of(a, row) == 1 && is_limited(a, row) && splits_over(plan, keys_of(a, row)) > 1;
}

inline int64_t pick_work(const core_pick_args& a) {
  int64_t pairs = 0;
  for (int64_t row = 0; row < a.rows; ++row) {
    if (is_limited(a, row)) pairs += queries_of(a, row) * keys_of(a, row);
  }
  return pairs * a.heads * a.key_dim;
}

template <typename P>
void pick_batch(const core_pick_args& a) {
  constexpr int64_t small = 1 << 16;
  int64_t threads = pick_work(a) < small ? 1 : a.threads, each = pick_layout(a).bytes;
  core_attention_args same{};
  same.heads = same.kv_heads = 1;
  same.threads = threads;
  Plan plan = make_plan(same, a.rows, 1, kTileKeys);
  auto scratch = static_cast<char*>(a.scratch);
  char* partials = scratch + each * a.threads;
  auto units_in = [&](int64_t row) { return pick_units(a, plan, row); };
  Dealt dealt(sum_of_units(a.rows, units_in), threads);
  run_pieces(threads, dealt.pieces(), [&](int64_t thread, Pieces& pieces) {
    Rows rows(a.rows, units_in);
    for (int64_t piece; pieces.take(&piece);) {
      if (!rows.find(dealt.unit(piece))) continue;
      pick_range<P>(a, pick_unit(a, plan, rows.row(), rows.within()), partials, scratch + thread * each);
    }
  });
  if (plan.splits == 1) return;
  run_pieces(threads, a.rows, [&](int64_t thread, Pieces& pieces) {
    for (int64_t row; pieces.take(&row);) {
      if (is_split(a, plan, row)) merge_picks(a, plan, row, partials, scratch + thread * each);
    }
  });
}

}  // namespace

void pick(const core_pick_args* a) {
  using Plain = Products<float, Loops<Widened<float>>, true>;
  // What bfloat16 does not hold: queries of float32, and keys of more bits.
  bool wide = a->dtype == CORE_F32 || a->kv_dtype == CORE_F32 || a->kv_dtype == CORE_F16;
#if defined(__AMX_BF16__)
  wide ? pick_batch<Plain>(*a) : pick_batch<Products<bf16, Tiles, true>>(*a);
#elif defined(CORE_ATTENTION_DOT)
  wide ? pick_batch<Plain>(*a) : pick_batch<Products<bf16, Loops<Dot>, true>>(*a);
#else
  (void)wide;
  pick_batch<Plain>(*a);
#endif
}

}  // namespace CORE_VARIANT
}  // namespace core
