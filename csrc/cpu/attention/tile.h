// One tile: query vectors that share a pass over a range of keys. Its scratch, its queries, its softmax.
#pragma once

#include <type_traits>

#include "attention/plan.h"
#include "attention/products.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// A cache of elements `S` and products `E`, which read the cache itself or (if `Copied`) a copy in their own form.
template <typename S_, typename E, bool Copied>
struct Products : E {
  using S = S_;
  using T = typename E::T;
  static constexpr bool kCopied = Copied;
  static constexpr int64_t kTileRows = Copied ? kMostTileRows : E::kTileRows;
};

// What a tile covers.
struct Range {
  int64_t row, head, begin, end;  // batch row, kv head, queries of the row
  int64_t first_key, last_key;    // keys, [first, last)
};

// `P` is a `Products`.
template <typename P>
struct Tile {
  const core_attention_args& a;
  const Plan& plan;
  char* scratch;
  TileLayout at;
  Range range;

  int64_t rows() const { return (range.end - range.begin) * plan.group; }
  // Keys per pass, also the stride of scores: few query vectors leave room for more, which spares rounds of softmax.
  int64_t keys() const { return rows() * kWideKeys <= plan.tile_rows * kTileKeys ? kWideKeys : kTileKeys; }
  typename P::Query* q() const { return reinterpret_cast<typename P::Query*>(scratch + at.q); }
  float* s() const { return reinterpret_cast<float*>(scratch + at.s); }
  typename P::Weight* p() const { return reinterpret_cast<typename P::Weight*>(scratch + at.p); }
  float* o() const { return reinterpret_cast<float*>(scratch + at.o); }
  float* maxima() const { return reinterpret_cast<float*>(scratch + at.stats); }
  float* sums() const { return maxima() + plan.tile_rows; }
  float* corrections() const { return sums() + plan.tile_rows; }
  typename P::T* copy() const { return reinterpret_cast<typename P::T*>(scratch + at.copy); }
  float* key_scales() const { return reinterpret_cast<float*>(scratch + at.scales); }
  float* value_scales() const { return key_scales() + kWideKeys; }

  // Place among the tokens of the batch, and query head, of query vector r.
  int64_t token(int64_t r) const { return a.query_starts[range.row] + range.begin + r / plan.group; }
  int64_t query_head(int64_t r) const { return range.head * plan.group + r % plan.group; }
  // Position in the sequence of query vector r.
  int64_t position(int64_t r) const {
    int64_t queries = a.query_starts[range.row + 1] - a.query_starts[range.row];
    return a.seq_lens[range.row] - queries + range.begin + r / plan.group;
  }
  // First position that a query at `position` sees.
  int64_t lowest(int64_t position) const {
    return a.window > 0 && position >= a.window ? position - a.window + 1 : 0;
  }
};

template <typename P, typename Q>
CORE_INLINE void load_query(const Tile<P>& t, int64_t r) {
  int64_t at = t.token(r) * t.a.q_stride + t.query_head(r) * t.a.head_dim;
  P::load_query(static_cast<const Q*>(t.a.q) + at, t.q() + r * P::words(t.a.head_dim), t.a.head_dim);
}

// Brings the tile's query vectors into the form that the products read, and clears its results.
template <typename P>
void load_queries(const Tile<P>& t) {
  for (int64_t r = 0; r < t.rows(); ++r) {
    if constexpr (P::kBfloat16Queries) {
      load_query<P, bf16>(t, r);
    } else {
      t.a.dtype == CORE_BF16 ? load_query<P, bf16>(t, r) : load_query<P, float>(t, r);
    }
    t.maxima()[r] = -__builtin_inff();
    t.sums()[r] = 0.0f;
  }
  std::memset(t.o(), 0, static_cast<size_t>(t.rows() * t.a.head_dim) * 4);
}

// Calls body(block of this kv head, offset in the block, offset in the range, count) for the blocks under some keys.
// `part` 0: keys, 1: values.
template <typename P, typename Body>
CORE_INLINE void for_blocks(const Tile<P>& t, int64_t first, int64_t count, int64_t part, const Body& body) {
  using S = typename P::S;
  const core_attention_args& a = t.a;
  const int32_t* table = a.table + t.range.row * a.table_stride;
  int64_t per_head = head_elements<S>(a.block_size, a.head_dim);
  auto cache = static_cast<const S*>(a.cache) + (part * a.kv_heads + t.range.head) * per_head;
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

// `value` where lanes `lane0 ..` are within [low, high), `other` elsewhere.
CORE_INLINE vf inside(vf value, float other, int64_t lane0, int64_t low, int64_t high) {
  vi lane = {};
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  vi index = lane + static_cast<int32_t>(lane0);
  vi seen = (index >= static_cast<int32_t>(low)) & (index < static_cast<int32_t>(high));
  return seen ? value : splat(other);
}

// Makes of `from .. to - 1` of a row's products its scores, in powers of 2 but for the factor that it returns.
template <typename P>
CORE_INLINE float finish_scores(const Tile<P>& t, float* s, int64_t from, int64_t to, int64_t low, int64_t high) {
  float scale = static_cast<float>(t.a.scale) * Format<typename P::S>::kUnit, cap = static_cast<float>(t.a.softcap);
  if constexpr (Format<typename P::S>::kScaled) {
    for (int64_t k = from; k < to; k += kLanes) store(s + k, load(s + k) * load(t.key_scales() + k));
  }
  if (cap != 0.0f) bend(s + from, to - from, scale, cap);
  constexpr float never = -__builtin_inff();
  if (from < low) store(s + from, inside(load(s + from), never, from, low, high));
  if (to > high) store(s + to - kLanes, inside(load(s + to - kLanes), never, to - kLanes, low, high));
  return cap == 0.0f ? scale * kLog2E : kLog2E;
}

// Turns one row of products into weights, and updates the row's maximum, sum and correction. Keys `low .. high - 1` of
// the tile's `count` are seen. Maxima are kept as exponents of 2.
template <typename P>
void softmax_row(const Tile<P>& t, int64_t r, int64_t low, int64_t high, int64_t count) {
  float* s = t.s() + r * t.keys();
  auto p = t.p() + r * P::words(t.keys());
  int64_t from = low / kLanes * kLanes, to = high > low ? round_up(high, kLanes) : from;
  for (int64_t k = 0; k < from; k += kLanes) P::store_weights(p, k, vf{});
  for (int64_t k = to; k < count; k += kLanes) P::store_weights(p, k, vf{});
  t.corrections()[r] = 1.0f;
  if (high <= low) return;

  float exponent = finish_scores(t, s, from, to, low, high);
  vf best = splat(-__builtin_inff());
  for (int64_t k = from; k < to; k += kLanes) best = vec_max(best, load(s + k));
  float before = t.maxima()[r], now = max_of(best) * exponent;
  now = now > before ? now : before;
  vf total = {};
  for (int64_t k = from; k < to; k += kLanes) {
    vf weight = exp2_negative(load(s + k) * exponent - now);
    total += weight;
    if constexpr (Format<typename P::S>::kScaled) {
      // The scales of places that hold no token may be anything.
      weight = inside(weight * load(t.value_scales() + k), 0.0f, k, low, high);
    }
    P::store_weights(p, k, weight);
  }
  float correction = before == now ? 1.0f : exp2_negative(splat(before - now))[0];
  t.corrections()[r] = correction;
  t.maxima()[r] = now;
  t.sums()[r] = t.sums()[r] * correction + sum(total);
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
