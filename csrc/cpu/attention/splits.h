// How units of work are told apart and handed out, and how the partial results of decode rows are joined.
#pragma once

#include "attention/softmax.h"
#include "attention/tile.h"
#include "common/parallel.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// What the tile's accumulators are multiplied with.
template <typename P>
CORE_INLINE float unit_of_values(const Tile<P>& t) {
  return Format<typename P::S>::kUnit * static_cast<float>(t.a.value_scale);
}

// `r`: first query vector of the kv head.
template <typename P>
void write_partial(const Tile<P>& t, int64_t r, float* partial) {
  int64_t group = t.plan.group, floats = group * t.a.head_dim;
  std::memcpy(partial, t.o() + r * t.a.head_dim, static_cast<size_t>(floats) * 4);
  std::memcpy(partial + floats, t.maxima() + r, static_cast<size_t>(group) * 4);
  for (int64_t g = 0; g < group; ++g) {
    partial[floats + group + g] = t.sums()[r + g] * (1.0f / unit_of_values(t));
  }
}

// Those of all kv heads of a tile; `partial`: of the first.
template <typename P>
void write_partials(const Tile<P>& t, float* partial) {
  int64_t each = partial_floats(t.plan.group, t.a.head_dim);
  for (int64_t h = 0; h < t.range.heads; ++h) {
    write_partial(t, h * t.plan.group, partial + h * t.plan.splits * each);
  }
}

// Joins the partial results of one decode row and kv head. `unit`: what their sums were divided by.
template <typename T>
void merge(const core_attention_args& a, const Plan& plan, const float* partials, int64_t splits, int64_t row,
           int64_t head, float unit) {
  int64_t each = partial_floats(plan.group, a.head_dim), floats = plan.group * a.head_dim;
  T* out = static_cast<T*>(a.out) + a.query_starts[row] * a.out_stride + head * plan.group * a.head_dim;
  for (int64_t g = 0; g < plan.group; ++g) {
    float best = -__builtin_inff(), total = 0.0f;
    for (int64_t i = 0; i < splits; ++i) {
      float one = partials[i * each + floats + g];
      best = one > best ? one : best;
    }
    float weights[kMaxSplits];
    for (int64_t i = 0; i < splits; ++i) {
      weights[i] = exp2(splat(partials[i * each + floats + g] - best))[0];
      total += weights[i] * partials[i * each + floats + plan.group + g];
    }
    if (a.sinks != nullptr) total += sink_weight(a.sinks[head * plan.group + g], best) / unit;
    for (int64_t d = 0; d < a.head_dim; d += kLanes) {
      vf value = {};
      for (int64_t i = 0; i < splits; ++i) value += load(partials + i * each + g * a.head_dim + d) * weights[i];
      store(out + g * a.head_dim + d, value * (1.0f / total));
    }
  }
}

// Ranges that so many keys of a decode row are cut into.
inline int64_t splits_over(const Plan& plan, int64_t keys) {
  int64_t most = keys / kSplitKeys;
  return most < 1 ? 1 : most < plan.splits ? most : plan.splits;
}

// What a decode row is cut into: groups of its kv heads, times ranges of its keys.
struct Cut {
  int64_t groups, splits;
};

// All kv heads of a block lie together, and memory gives the more the longer it is read on: so there are few groups.
inline Cut cut_of(const core_attention_args& a, const Plan& plan, int64_t row) {
  int64_t length = a.seq_lens[row];
  if (a.window > 0 && length > a.window) length = a.window;
  int64_t most = splits_over(plan, length), groups = ceil_div(plan.units, most);
  int64_t least = ceil_div(a.kv_heads, plan.heads);
  groups = groups < least ? least : groups < a.kv_heads ? groups : a.kv_heads;
  int64_t splits = ceil_div(plan.units, groups);
  return {groups, splits < most ? splits : most};
}

// Whether any decode row leaves partial results.
inline bool is_split(const core_attention_args& a, const Plan& plan) {
  if (plan.splits == 1) return false;
  for (int64_t row = 0; row < a.rows; ++row) {
    if (a.query_starts[row + 1] - a.query_starts[row] == 1 && cut_of(a, plan, row).splits > 1) return true;
  }
  return false;
}

// A unit of work, told by its number within the row.
inline Range unit_of(const core_attention_args& a, const Plan& plan, int64_t row, int64_t unit) {
  int64_t queries = a.query_starts[row + 1] - a.query_starts[row], length = a.seq_lens[row];
  Range range{row, 0, 0, 1, 0, length, -1};
  if (queries == 1) {
    Cut cut = cut_of(a, plan, row);
    int64_t group = unit / cut.splits, split = unit % cut.splits;
    int64_t low = a.window > 0 && length > a.window ? length - a.window : 0;
    // No range begins inside a step of the products: its keys would be seen by two ranges.
    auto key = [&](int64_t i) {
      return i == 0 ? low : i == cut.splits ? length : (low + (length - low) * i / cut.splits) / kCut * kCut;
    };
    range.head = a.kv_heads * group / cut.groups;
    range.heads = a.kv_heads * (group + 1) / cut.groups - range.head;
    range.first_key = key(split);
    range.last_key = key(split + 1);
    if (cut.splits > 1) range.partial = (row * a.kv_heads + range.head) * plan.splits + split;
  } else {
    // Later tiles see more keys: hand them out first, so that threads finish together.
    int64_t tiles = ceil_div(queries, plan.tile_queries);
    range.head = unit % a.kv_heads;
    range.begin = (tiles - 1 - unit / a.kv_heads) * plan.tile_queries;
    range.end = range.begin + plan.tile_queries < queries ? range.begin + plan.tile_queries : queries;
    range.last_key = length - queries + range.end;
    int64_t position = length - queries + range.begin;
    range.first_key = a.window > 0 && position >= a.window ? position - a.window + 1 : 0;
  }
  return range;
}

inline int64_t units_of(const core_attention_args& a, const Plan& plan, int64_t row) {
  int64_t queries = a.query_starts[row + 1] - a.query_starts[row];
  if (queries != 1) return a.kv_heads * ceil_div(queries, plan.tile_queries);
  Cut cut = cut_of(a, plan, row);
  return cut.groups * cut.splits;
}

// Scores to compute; what decides whether a team is worth its cost.
inline int64_t work_of(const core_attention_args& a) {
  int64_t work = 0;
  for (int64_t row = 0; row < a.rows; ++row) {
    work += static_cast<int64_t>(a.query_starts[row + 1] - a.query_starts[row]) * a.seq_lens[row];
  }
  return work * a.heads * a.head_dim;
}

// Joins what decode rows were cut into. `splits_in(row)`: how many ranges.
template <typename SplitsIn>
void merge_rows(const core_attention_args& a, const Plan& plan, int64_t threads, const float* partials, float unit,
                const SplitsIn& splits_in) {
  run_pieces(threads, a.rows * a.kv_heads, [&](int64_t, Pieces& pieces) {
    for (int64_t next; pieces.take(&next);) {
      int64_t row = next / a.kv_heads, head = next % a.kv_heads;
      int64_t splits = a.query_starts[row + 1] - a.query_starts[row] == 1 ? splits_in(row) : 1;
      if (splits == 1) continue;
      const float* own = partials + next * plan.splits * partial_floats(plan.group, a.head_dim);
      a.dtype == CORE_BF16 ? merge<bf16>(a, plan, own, splits, row, head, unit)
                           : merge<float>(a, plan, own, splits, row, head, unit);
    }
  });
}

inline void merge_all(const core_attention_args& a, const Plan& plan, int64_t threads, const float* partials,
                      float unit) {
  merge_rows(a, plan, threads, partials, unit, [&](int64_t row) { return cut_of(a, plan, row).splits; });
}

// Units of a batch as pieces: dealt out to the threads in turn, so that every share begins with long ones.
struct Dealt {
  int64_t units, threads, each;

  Dealt(int64_t units, int64_t threads) : units(units), threads(threads), each(ceil_div(units, threads)) {}

  int64_t pieces() const { return each * threads; }

  // The unit of a piece; `units` and more: there is none.
  int64_t unit(int64_t piece) const { return piece % each * threads + piece / each; }
};

// Which row a unit is of, and which of its units. `units_in(row)`: how many a row has.
template <typename UnitsIn>
class Rows {
 public:
  Rows(int64_t rows, const UnitsIn& units_in) : rows_(rows), units_in_(units_in) { restart(); }

  // Goes to the row of a unit; false: there is none.
  bool find(int64_t unit) {
    if (unit < before_) restart();
    while (row_ < rows_ && unit - before_ >= units_) {
      before_ += units_;
      if (++row_ < rows_) units_ = units_in_(row_);
    }
    within_ = unit - before_;
    return row_ < rows_;
  }

  int64_t row() const { return row_; }
  int64_t within() const { return within_; }

 private:
  void restart() {
    row_ = before_ = 0;
    units_ = rows_ > 0 ? units_in_(0) : 0;
  }

  int64_t rows_, row_, before_, units_, within_ = 0;
  const UnitsIn& units_in_;
};

template <typename UnitsIn>
int64_t sum_of_units(int64_t rows, const UnitsIn& units_in) {
  int64_t units = 0;
  for (int64_t row = 0; row < rows; ++row) units += units_in(row);
  return units;
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
