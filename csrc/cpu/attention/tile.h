// One tile: query vectors that share a pass over a range of keys. Its scratch and its queries.
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
  static constexpr int64_t kPass = Copied ? kTileKeys : E::kPass;
  static constexpr bool kGathers = !Copied && E::kGathers;
};

// What a tile covers.
struct Range {
  int64_t row, head, begin, end;  // batch row, first kv head, queries of the row
  int64_t first_key, last_key;    // keys, [first, last)
  int64_t partial;                // which partial result its first kv head makes, or -1
  int64_t heads = 1;              // kv heads
};

// `P` is a `Products`.
template <typename P>
struct Tile {
  const core_attention_args& a;
  const Plan& plan;
  char* scratch;
  TileLayout at;
  Range range;
  Range after;  // what this thread attends next; without keys if there is nothing
  int64_t whole = 0;  // keys of the only pass, where it is not `keys()`

  // Query vectors, kv head by kv head, and those of one.
  int64_t rows() const { return head_rows() * range.heads; }
  int64_t head_rows() const { return (range.end - range.begin) * plan.group; }
  // Keys per pass: few query vectors leave room for more, which spares rounds of softmax.
  int64_t keys() const { return whole > 0 ? whole : rows() * kWideKeys <= plan.tile_rows * kTileKeys ? kWideKeys : P::kPass; }
  // From a row's scores to the next row's; `P::words` of it for weights.
  int64_t stride() const { return keys() + kPadKeys; }
  typename P::Query* q() const { return reinterpret_cast<typename P::Query*>(scratch + at.q); }
  float* s() const { return reinterpret_cast<float*>(scratch + at.s); }
  typename P::Weight* p() const { return reinterpret_cast<typename P::Weight*>(scratch + at.p); }
  float* o() const { return reinterpret_cast<float*>(scratch + at.o); }
  float* maxima() const { return reinterpret_cast<float*>(scratch + at.stats); }
  float* sums() const { return maxima() + at.row_stats; }
  float* corrections() const { return sums() + at.row_stats; }
  float* fresh() const { return corrections() + at.row_stats; }  // sums of a pass's weights
  // Of products that round: units of the queries, the largest of `maxima` so far, and the largest scale of a pass's values.
  float* query_units() const { return fresh() + at.row_stats; }
  float* highest() const { return query_units() + at.row_stats; }
  float* largest_scales() const { return highest() + at.row_stats; }
  float* lane_sums(int64_t r) const { return largest_scales() + at.row_stats + r * kLanes; }  // of products that gather
  typename P::T* copy() const { return reinterpret_cast<typename P::T*>(scratch + at.copy); }
  // Scales of the keys, or values, that query vector r reads.
  float* key_scales(int64_t r) const { return reinterpret_cast<float*>(scratch + at.scales) + r / head_rows() * keys(); }
  float* value_scales(int64_t r) const { return key_scales(r) + scale_places(plan.tile_rows, plan.pass); }

  // Place among the row's queries, among the tokens of the batch, and query head, of query vector r.
  int64_t query(int64_t r) const { return range.begin + r % head_rows() / plan.group; }
  int64_t token(int64_t r) const { return a.query_starts[range.row] + query(r); }
  int64_t query_head(int64_t r) const { return (range.head + r / head_rows()) * plan.group + r % plan.group; }
  // Position in the sequence of query vector r, and of the row's first query.
  int64_t position(int64_t r) const { return first_position() + query(r); }
  int64_t first_position() const {
    int64_t queries = a.query_starts[range.row + 1] - a.query_starts[range.row];
    return a.seq_lens[range.row] - queries;
  }
  // First position that a query at `position` sees.
  int64_t lowest(int64_t position) const {
    return a.window > 0 && position >= a.window ? position - a.window + 1 : 0;
  }
};

// Calls body(r, position in the sequence) for the tile's query vectors.
template <typename P, typename Body>
CORE_INLINE void for_rows(const Tile<P>& t, const Body& body) {
  int64_t first = t.first_position(), r = 0;
  for (int64_t h = 0; h < t.range.heads; ++h) {
    for (int64_t query = t.range.begin; query < t.range.end; ++query) {
      for (int64_t g = 0; g < t.plan.group; ++g) body(r++, first + query);
    }
  }
}

template <typename P, typename Q>
CORE_INLINE void load_query(const Tile<P>& t, int64_t r) {
  int64_t at = t.token(r) * t.a.q_stride + t.query_head(r) * t.a.head_dim;
  const Q* from = static_cast<const Q*>(t.a.q) + at;
  typename P::Query* to = t.q() + r * P::words(t.a.head_dim);
  if constexpr (P::kRounded) {
    t.query_units()[r] = P::load_query(from, to, t.a.head_dim);
  } else {
    P::load_query(from, to, t.a.head_dim);
  }
}

// Clears results, whose vectors have `head_dim` numbers.
template <typename P>
void clear_results(const Tile<P>& t) {
  for (int64_t r = 0; r < t.rows(); ++r) {
    t.maxima()[r] = -__builtin_inff();
    t.sums()[r] = 0.0f;
    if constexpr (P::kGathers) store(t.lane_sums(r), vf{});
    if constexpr (P::kRounded) t.highest()[r] = -__builtin_inff();
  }
  std::memset(t.o(), 0, static_cast<size_t>(t.rows() * t.a.head_dim) * 4);
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
  }
  clear_results(t);
}

// Calls body(block of the tile's first kv head, offset in the block, offset in the range, count) for the blocks under
// some keys. `part` 0: keys, 1: values.
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

// Calls body(block of a kv head, its first query vector) for the tile's kv heads, whose first has this block.
template <typename P, typename Body>
CORE_INLINE void for_heads(const Tile<P>& t, const typename P::S* block, const Body& body) {
  int64_t per_head = head_elements<typename P::S>(t.a.block_size, t.a.head_dim);
  for (int64_t h = 0; h < t.range.heads; ++h) body(block + h * per_head, h * t.head_rows());
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
