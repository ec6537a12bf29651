// Paged attention for the instruction set of the including file, in namespace core::CORE_VARIANT.
//
// One unit of work is one tile of query vectors against one range of keys, for one kv head: scores of 128 keys, online
// softmax, product with the values, accumulators rescaled. Decode rows and prompts run the same code; they differ in
// how many query vectors share the pass.
#include <atomic>

#include "attention/plan.h"
#include "attention/products.h"
#include "common/parallel.h"
#if defined(__AMX_BF16__)
#include "attention/tiles.h"
#endif

namespace core {
namespace CORE_VARIANT {
namespace {

// One tile and its scratch. `P` is how the products are made: `Loops` of an element type, or AMX tiles.
template <typename P>
struct Tile {
  using T = typename P::T;

  const core_attention_args& a;
  const Plan& plan;
  char* scratch;
  int64_t row, head, begin, end;  // batch row, kv head, queries of the row
  int64_t first_key, last_key;    // range of keys, [first, last)
  TileLayout at;

  int64_t rows() const { return (end - begin) * plan.group; }
  // Keys per pass, also the stride of scores: few query vectors leave room for more, which spares rounds of softmax.
  int64_t keys() const { return rows() * kWideKeys <= plan.tile_rows * kTileKeys ? kWideKeys : kTileKeys; }
  typename P::Query* q() const { return reinterpret_cast<typename P::Query*>(scratch + at.q); }
  float* s() const { return reinterpret_cast<float*>(scratch + at.s); }
  typename P::Weight* p() const { return reinterpret_cast<typename P::Weight*>(scratch + at.p); }
  float* o() const { return reinterpret_cast<float*>(scratch + at.o); }
  float* maxima() const { return reinterpret_cast<float*>(scratch + at.stats); }
  float* sums() const { return maxima() + plan.tile_rows; }
  float* corrections() const { return sums() + plan.tile_rows; }

  // Position in the sequence of the tile's query vector r.
  int64_t position(int64_t r) const {
    int64_t queries = a.query_starts[row + 1] - a.query_starts[row];
    return a.seq_lens[row] - queries + begin + r / plan.group;
  }
  // First position that a query at `position` sees.
  int64_t lowest(int64_t position) const {
    return a.window > 0 && position >= a.window ? position - a.window + 1 : 0;
  }
};

// Brings the tile's query vectors into the form that the products read, and clears its results.
template <typename P>
void load_queries(const Tile<P>& t) {
  using T = typename P::T;
  const core_attention_args& a = t.a;
  auto q = static_cast<const T*>(a.q);
  for (int64_t r = 0; r < t.rows(); ++r) {
    int64_t token = a.query_starts[t.row] + t.begin + r / t.plan.group;
    const T* source = q + token * a.q_stride + (t.head * t.plan.group + r % t.plan.group) * a.head_dim;
    P::load_query(source, t.q() + r * P::words(a.head_dim), a.head_dim);
    t.maxima()[r] = -__builtin_inff();
    t.sums()[r] = 0.0f;
  }
  std::memset(t.o(), 0, static_cast<size_t>(t.rows() * a.head_dim) * 4);
}

// Calls body(block of this kv head, offset in the block, offset in the tile, count) for the blocks under some keys.
template <typename P, typename Body>
CORE_INLINE void for_blocks(const Tile<P>& t, int64_t first, int64_t count, int64_t part, const Body& body) {
  using T = typename P::T;
  const core_attention_args& a = t.a;
  const int32_t* table = a.table + t.row * a.table_stride;
  int64_t per_head = a.block_size * a.head_dim;
  auto cache = static_cast<const T*>(a.cache) + (part * a.kv_heads + t.head) * per_head;
  for (int64_t done = 0; done < count;) {
    int64_t key = first + done, offset = key % a.block_size;
    int64_t here = a.block_size - offset < count - done ? a.block_size - offset : count - done;
    body(cache + table[key / a.block_size] * a.block_stride, offset, done, here);
    done += here;
  }
}

constexpr float kLog2E = 1.44269504f;

// Applies scale and soft cap to `count` scores. Without a cap the scale waits for the exponential.
inline void bend(float* s, int64_t count, float scale, float cap) {
  for (int64_t k = 0; k < count; k += kLanes) {
    store(s + k, (2.0f * sigmoid(load(s + k) * (2.0f * scale / cap)) - 1.0f) * cap);
  }
}

CORE_INLINE vf hide_outside(vf score, int64_t lane0, int64_t low, int64_t high) {
  vi lane = {};
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  vi index = lane + static_cast<int32_t>(lane0);
  vi seen = (index >= static_cast<int32_t>(low)) & (index < static_cast<int32_t>(high));
  return seen ? score : splat(-__builtin_inff());
}

// Turns one row of scores into weights, and updates the row's maximum, sum and correction. Keys `low .. high - 1` of
// the tile's `count` are seen. Maxima are kept as exponents of 2.
template <typename P>
void softmax_row(const Tile<P>& t, int64_t r, int64_t low, int64_t high, int64_t count) {
  float* s = t.s() + r * t.keys();
  auto p = t.p() + r * P::words(t.keys());
  float cap = static_cast<float>(t.a.softcap);
  float exponent = cap == 0.0f ? static_cast<float>(t.a.scale) * kLog2E : kLog2E;
  int64_t from = low / kLanes * kLanes, to = high > low ? round_up(high, kLanes) : from;
  for (int64_t k = 0; k < from; k += kLanes) P::store_weights(p, k, vf{});
  for (int64_t k = to; k < count; k += kLanes) P::store_weights(p, k, vf{});
  t.corrections()[r] = 1.0f;
  if (high <= low) return;

  if (cap != 0.0f) bend(s + from, to - from, static_cast<float>(t.a.scale), cap);
  if (from < low) store(s + from, hide_outside(load(s + from), from, low, high));
  if (to > high) store(s + to - kLanes, hide_outside(load(s + to - kLanes), to - kLanes, low, high));
  vf best = splat(-__builtin_inff());
  for (int64_t k = from; k < to; k += kLanes) best = vec_max(best, load(s + k));
  float before = t.maxima()[r], now = max_of(best) * exponent;
  now = now > before ? now : before;
  vf total = {};
  for (int64_t k = from; k < to; k += kLanes) {
    vf weight = exp2_negative(load(s + k) * exponent - now);
    total += weight;
    P::store_weights(p, k, weight);
  }
  float correction = before == now ? 1.0f : exp2_negative(splat(before - now))[0];
  t.corrections()[r] = correction;
  t.maxima()[r] = now;
  t.sums()[r] = t.sums()[r] * correction + sum(total);
}

// Asks for the block that is read next: the processor's own prefetching ends at a page, and a block of one head is one.
template <typename T>
CORE_INLINE void ask_for(const T* block, int64_t elements) {
  for (int64_t i = 0; i < elements; i += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(block + i, 0, 2);
}

// The tile against `count` keys from `first` on; both are multiples of `P::kKeys`.
template <typename P>
void attend_keys(const Tile<P>& t, int64_t first, int64_t count) {
  using T = typename P::T;
  const core_attention_args& a = t.a;
  for_blocks(t, first, count, 0, [&](const T* keys, int64_t offset, int64_t at, int64_t here) {
    const T* values = keys + a.kv_heads * a.block_size * a.head_dim;
    if (t.rows() <= kAskRows) ask_for(values + offset * a.head_dim, here * a.head_dim);
    P::scores(t.q(), keys, t.s() + at, t.keys(), t.rows(), a.head_dim, a.block_size, offset, here);
  });
  for (int64_t r = 0; r < t.rows(); ++r) {
    int64_t position = t.position(r);
    int64_t low = t.lowest(position) - first, high = position + 1 - first;
    int64_t limit = t.last_key - first;  // a split ends before the row does
    high = high < limit ? high : limit;
    softmax_row(t, r, low > 0 ? low : 0, high < count ? high : count, count);
  }
  bool fresh = true;  // the first block's product also applies the corrections
  for_blocks(t, first, count, 1, [&](const T* values, int64_t offset, int64_t at, int64_t here) {
    int64_t seen = t.last_key - first - at < here ? t.last_key - first - at : here;
    P::accumulate(t.p() + P::words(at), P::words(t.keys()), values, t.o(),
                            fresh ? t.corrections() : nullptr, t.rows(), a.head_dim, offset, seen);
    fresh = false;
  });
}

template <typename P>
void attend(const Tile<P>& t) {
  load_queries(t);
  P::enter(t.rows());
  int64_t first = t.first_key / P::kKeys * P::kKeys, end = round_up(t.last_key, P::kKeys);
  for (int64_t key = first; key < end; key += t.keys()) {
    attend_keys(t, key, end - key < t.keys() ? end - key : t.keys());
  }
  P::leave();
}

template <typename P>
void write_rows(const Tile<P>& t) {
  using T = typename P::T;
  const core_attention_args& a = t.a;
  for (int64_t r = 0; r < t.rows(); ++r) {
    int64_t token = a.query_starts[t.row] + t.begin + r / t.plan.group;
    T* out = static_cast<T*>(a.out) + token * a.out_stride + (t.head * t.plan.group + r % t.plan.group) * a.head_dim;
    float inverse = 1.0f / t.sums()[r];
    for (int64_t d = 0; d < a.head_dim; d += kLanes) store(out + d, load(t.o() + r * a.head_dim + d) * inverse);
  }
}

template <typename P>
void write_partial(const Tile<P>& t, float* partial) {
  const core_attention_args& a = t.a;
  int64_t floats = t.plan.group * a.head_dim;
  std::memcpy(partial, t.o(), static_cast<size_t>(floats) * 4);
  std::memcpy(partial + floats, t.maxima(), static_cast<size_t>(t.plan.group) * 4);
  std::memcpy(partial + floats + t.plan.group, t.sums(), static_cast<size_t>(t.plan.group) * 4);
}

// Joins the partial results of one decode row and kv head.
template <typename T>
void merge(const core_attention_args& a, const Plan& plan, const float* partials, int64_t splits, int64_t row,
           int64_t head) {
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
      weights[i] = exp2_negative(splat(partials[i * each + floats + g] - best))[0];
      total += weights[i] * partials[i * each + floats + plan.group + g];
    }
    for (int64_t d = 0; d < a.head_dim; d += kLanes) {
      vf value = {};
      for (int64_t i = 0; i < splits; ++i) value += load(partials + i * each + g * a.head_dim + d) * weights[i];
      store(out + g * a.head_dim + d, value * (1.0f / total));
    }
  }
}

// Ranges that the keys of a decode row are cut into.
inline int64_t splits_of(const core_attention_args& a, const Plan& plan, int64_t row) {
  int64_t length = a.seq_lens[row];
  if (a.window > 0 && length > a.window) length = a.window;
  int64_t most = length / kSplitKeys;
  return most < 1 ? 1 : most < plan.splits ? most : plan.splits;
}

// A unit of work, told by its number within the row.
template <typename P>
void run_unit(const core_attention_args& a, const Plan& plan, char* scratch, float* partials, int64_t row,
              int64_t unit) {
  TileLayout layout = tile_layout(plan.tile_rows, a.head_dim);
  int64_t queries = a.query_starts[row + 1] - a.query_starts[row], length = a.seq_lens[row];
  if (queries == 1) {
    int64_t splits = splits_of(a, plan, row), head = unit / splits, split = unit % splits;
    int64_t low = a.window > 0 && length > a.window ? length - a.window : 0;
    // No range begins inside a step of the products: its keys would be seen by two ranges.
    auto cut = [&](int64_t i) {
      return i == 0 ? low : i == splits ? length : (low + (length - low) * i / splits) / kCut * kCut;
    };
    Tile<P> tile{a, plan, scratch, row, head, 0, 1, cut(split), cut(split + 1), layout};
    attend(tile);
    if (splits == 1) return write_rows(tile);
    int64_t place = (row * a.kv_heads + head) * plan.splits + split;
    return write_partial(tile, partials + place * partial_floats(plan.group, a.head_dim));
  }
  // Later tiles see more keys: hand them out first, so that threads finish together.
  int64_t tiles = ceil_div(queries, plan.tile_queries), head = unit % a.kv_heads;
  int64_t begin = (tiles - 1 - unit / a.kv_heads) * plan.tile_queries;
  int64_t end = begin + plan.tile_queries < queries ? begin + plan.tile_queries : queries;
  Tile<P> tile{a, plan, scratch, row, head, begin, end, 0, length - queries + end, layout};
  tile.first_key = tile.lowest(length - queries + begin);
  attend(tile);
  write_rows(tile);
}

inline int64_t units_of(const core_attention_args& a, const Plan& plan, int64_t row) {
  int64_t queries = a.query_starts[row + 1] - a.query_starts[row];
  if (queries == 1) return a.kv_heads * splits_of(a, plan, row);
  return a.kv_heads * ceil_div(queries, plan.tile_queries);
}

// Scores to compute; what decides whether a team is worth its cost.
inline int64_t work_of(const core_attention_args& a) {
  int64_t work = 0;
  for (int64_t row = 0; row < a.rows; ++row) {
    work += static_cast<int64_t>(a.query_starts[row + 1] - a.query_starts[row]) * a.seq_lens[row];
  }
  return work * a.heads * a.head_dim;
}

template <typename P>
void attention(const core_attention_args& a) {
  constexpr int64_t small = 1 << 16;
  int64_t threads = work_of(a) < small ? 1 : a.threads;
  core_attention_args sized = a;
  sized.threads = threads;
  Plan plan = make_plan(sized, a.rows, P::kTileRows);
  int64_t each = tile_layout(plan.tile_rows, a.head_dim).bytes;
  auto scratch = static_cast<char*>(a.scratch);
  auto partials = reinterpret_cast<float*>(scratch + each * a.threads);
  std::atomic<int64_t> ticket{0}, merging{0};
  Barrier all_attended;
  run_team(threads, [&](int64_t thread, int64_t team) {
    char* mine = scratch + thread * each;
    int64_t row = 0, before = 0, units = a.rows > 0 ? units_of(a, plan, 0) : 0;
    for (int64_t next = ticket.fetch_add(1); row < a.rows;) {
      if (next - before >= units) {
        before += units;
        if (++row < a.rows) units = units_of(a, plan, row);
        continue;
      }
      run_unit<P>(a, plan, mine, partials, row, next - before);
      next = ticket.fetch_add(1);
    }
    if (plan.splits == 1) return;
    all_attended.wait(team);
    for (int64_t next = merging.fetch_add(1); next < a.rows * a.kv_heads; next = merging.fetch_add(1)) {
      int64_t at = next / a.kv_heads, head = next % a.kv_heads;
      int64_t splits = a.query_starts[at + 1] - a.query_starts[at] == 1 ? splits_of(a, plan, at) : 1;
      if (splits == 1) continue;
      const float* own = partials + next * plan.splits * partial_floats(plan.group, a.head_dim);
      merge<typename P::T>(a, plan, own, splits, at, head);
    }
  });
}

}  // namespace

void attention(const core_attention_args* a) {
  if (a->dtype == CORE_F32) return attention<Loops<Float32>>(*a);
#if defined(__AMX_BF16__)
  if (a->head_dim % 32 == 0 && a->block_size % 32 == 0) return attention<Tiles>(*a);
#endif
  attention<Loops<BFloat16>>(*a);
}

}  // namespace CORE_VARIANT
}  // namespace core
