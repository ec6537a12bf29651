// Attention without a cache, for the instruction set of the including file: tiles of the queries of one head against the
// keys of its row, which every tile copies in the products' own form.
#pragma once

#include <utility>

#include "attention/encode.h"
#include "attention/rows.h"
#include "attention/softmax.h"
#include "attention/tile.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// The same as an attention call, as far as tiles know it: heads as wide as the products want them.
inline core_attention_args widened(const core_encode_args& a, int64_t head_dim) {
  core_attention_args wide{};
  wide.q = a.q;
  wide.out = a.out;
  wide.query_starts = a.query_starts;
  wide.scratch = a.scratch;
  wide.rows = a.rows;
  wide.heads = a.heads;
  wide.kv_heads = a.kv_heads;
  wide.head_dim = head_dim;
  wide.q_stride = a.q_stride;
  wide.out_stride = a.out_stride;
  wide.dtype = a.dtype;
  wide.threads = a.threads;
  wide.scale = a.scale;
  return wide;
}

// A tile and what it reads.
template <typename P>
struct Encoding {
  const core_encode_args& a;
  Tile<P> t;

  using S = typename P::S;

  int64_t length() const { return a.query_starts[t.range.row + 1] - a.query_starts[t.range.row]; }
  const S* rows(const void* all, int64_t stride, int64_t first) const {
    return static_cast<const S*>(all) + (a.query_starts[t.range.row] + first) * stride + t.range.head * a.head_dim;
  }
  S* vector(int64_t r, const void* all, int64_t stride) const {
    return const_cast<S*>(static_cast<const S*>(all)) + t.token(r) * stride + t.query_head(r) * a.head_dim;
  }
  // Which of the `count` keys from `first` on, of which `seen` are there, query vector r sees: from, to.
  std::pair<int64_t, int64_t> sight(int64_t r, int64_t first, int64_t seen, int64_t count) const {
    if (a.reach < 0) return {0, seen};
    int64_t place = t.range.begin + r / t.plan.group - first, from = place - a.reach, to = place + a.reach + 1;
    return {from < 0 ? 0 : from < count ? from : count, to < seen ? to : seen};
  }
};

template <typename P>
void load_encoder_queries(const Encoding<P>& e) {
  using S = typename P::S;
  const Tile<P>& t = e.t;
  int64_t head_dim = t.a.head_dim;
  for (int64_t r = 0; r < t.rows(); ++r) {
    const S* from = e.vector(r, e.a.q, e.a.q_stride);
    S whole[kMostHeadDim];
    if (e.a.head_dim != head_dim) {
      std::memset(whole, 0, sizeof(whole));
      std::memcpy(whole, from, static_cast<size_t>(e.a.head_dim) * sizeof(S));
      from = whole;
    }
    P::load_query(from, t.q() + r * P::words(head_dim), head_dim);
    t.maxima()[r] = -__builtin_inff();
    t.sums()[r] = 0.0f;
  }
  std::memset(t.o(), 0, static_cast<size_t>(t.rows() * head_dim) * 4);
}

// Scores of `count` keys from `first` on, of which `seen` are there.
template <typename P>
void encode_keys(const Encoding<P>& e, int64_t first, int64_t count, int64_t seen) {
  const Tile<P>& t = e.t;
  int64_t head_dim = t.a.head_dim;
  for (int64_t done = 0; done < count; done += kTileKeys) {
    int64_t keys = count - done < kTileKeys ? count - done : kTileKeys;
    int64_t there = seen - done < keys ? seen - done : keys;
    copy_key_rows(e.rows(e.a.k, e.a.k_stride, first + done), e.a.k_stride, t.copy(), head_dim, e.a.head_dim, there);
    for (int64_t k = 0; k < keys; k += kPanelKeys) {
      int64_t here = keys - k < kPanelKeys ? keys - k : kPanelKeys;
      P::scores(t.q(), t.copy() + k * head_dim, t.s() + done + k, t.stride(), t.rows(), head_dim, kPanelKeys, 0, here);
    }
  }
}

template <typename P>
void encode_values(const Encoding<P>& e, int64_t first, int64_t seen) {
  const Tile<P>& t = e.t;
  int64_t head_dim = t.a.head_dim;
  for (int64_t done = 0; done < seen; done += kTileKeys) {
    int64_t tokens = seen - done < kTileKeys ? seen - done : kTileKeys;
    copy_value_rows(e.rows(e.a.v, e.a.v_stride, first + done), e.a.v_stride, t.copy(), head_dim, e.a.head_dim, tokens);
    clear_values(t.copy(), head_dim, tokens, P::kKeys);
    P::accumulate(t.p() + P::words(done), P::words(t.stride()), t.copy(), t.o(), done == 0 ? t.corrections() : nullptr,
                  t.rows(), head_dim, 0, tokens);
  }
}

template <typename P>
void write_encoded(const Encoding<P>& e) {
  using S = typename P::S;
  const Tile<P>& t = e.t;
  for (int64_t r = 0; r < t.rows(); ++r) {
    S* out = e.vector(r, e.a.out, e.a.out_stride);
    const float* from = t.o() + r * t.a.head_dim;
    float inverse = 1.0f / t.sums()[r];
    int64_t d = 0;
    for (; d + kLanes <= e.a.head_dim; d += kLanes) store(out + d, load(from + d) * inverse);
    if (d < e.a.head_dim) store_part(out + d, load(from + d) * inverse, e.a.head_dim - d);
  }
}

template <typename P>
void encode_tile(const Encoding<P>& e) {
  const Tile<P>& t = e.t;
  load_encoder_queries(e);
  P::enter(t.rows());
  int64_t begin = t.range.first_key / P::kKeys * P::kKeys, last = t.range.last_key, end = round_up(last, P::kKeys);
  for (int64_t first = begin; first < end; first += t.keys()) {
    int64_t count = end - first < t.keys() ? end - first : t.keys(), seen = last - first < count ? last - first : count;
    encode_keys(e, first, count, seen);
    for (int64_t r = 0; r < t.rows(); ++r) {
      auto [low, high] = e.sight(r, first, seen, count);
      softmax_row(t, r, low, high, count, 0);
    }
    finish_pass(t);
    encode_values(e, first, seen);
  }
  P::leave();
  write_encoded(e);
}

constexpr float kLeastSum = 0x1p-60f;

// One row of products becomes weights; keys `low .. high - 1` of `count` are seen, and there are no others.
template <typename P>
void softmax_whole(const Tile<P>& t, int64_t r, int64_t low, int64_t high, int64_t count) {
  float* s = t.s() + r * t.stride();
  auto p = t.p() + r * P::words(t.stride());
  int64_t from = low / kLanes * kLanes, to = round_up(high, kLanes);
  float exponent = finish_scores(t, r, from, to, low, high, 0);
  vf total;
  // Relative to 1, which spares the search for the largest score, unless that is very large or very small.
  bool beyond = weigh<P>(s, p, from, to, exponent, 0.0f, &total);
  if (beyond || !(sum(total) > kLeastSum)) {
    vf best = splat(-__builtin_inff());
    for (int64_t k = from; k < to; k += kLanes) best = vec_max(best, load(s + k));
    weigh<P>(s, p, from, to, exponent, max_of(best) * exponent, &total);
  }
  for (int64_t k = 0; k < from; k += kLanes) P::store_weights(p, k, vf{});
  for (int64_t k = to; k < count; k += kLanes) P::store_weights(p, k, vf{});
  t.sums()[r] = sum(total);
}

// Tiles of few query vectors, one after another, against the keys and values `first .. last - 1`, which were copied.
template <typename P>
void encode_whole(const Encoding<P>& e, char* copies) {
  const Range& range = e.t.range;
  int64_t head_dim = e.t.a.head_dim, group = e.t.plan.group;
  int64_t begin = range.first_key / P::kKeys * P::kKeys, seen = range.last_key - begin;
  int64_t count = round_up(seen, P::kKeys), queries = group < kWholeRows ? kWholeRows / group : 1, entered = 0;
  auto keys = reinterpret_cast<typename P::T*>(copies), values = keys + kWholeKeys * head_dim;
  copy_key_rows(e.rows(e.a.k, e.a.k_stride, begin), e.a.k_stride, keys, head_dim, e.a.head_dim, seen);
  copy_value_rows(e.rows(e.a.v, e.a.v_stride, begin), e.a.v_stride, values, head_dim, e.a.head_dim, seen);
  clear_values(values, head_dim, seen, P::kKeys);
  for (int64_t query = range.begin; query < range.end; query += queries) {
    Encoding<P> some = e;
    some.t.range.begin = query;
    some.t.range.end = query + queries < range.end ? query + queries : range.end;
    some.t.whole = count;
    const Tile<P>& t = some.t;
    load_encoder_queries(some);
    if (t.rows() != entered) P::enter(t.rows());
    entered = t.rows();
    for (int64_t k = 0; k < count; k += kPanelKeys) {
      int64_t here = count - k < kPanelKeys ? count - k : kPanelKeys;
      P::scores(t.q(), keys + k * head_dim, t.s() + k, t.stride(), t.rows(), head_dim, kPanelKeys, 0, here);
    }
    for (int64_t r = 0; r < t.rows(); ++r) {
      auto [low, high] = some.sight(r, begin, seen, count);
      softmax_whole(t, r, low, high, count);
    }
    P::accumulate(t.p(), P::words(t.stride()), values, t.o(), nullptr, t.rows(), head_dim, 0, seen);
    write_encoded(some);
  }
  P::leave();
}

// Whether a row's keys are copied whole: then a unit may have more queries than a tile.
inline bool is_whole(const Plan& plan, int64_t length) { return length <= kWholeKeys && plan.group <= kWholeRows; }

// Queries of a row's units: all of them where there are rows enough, or else tiles of about equal size, as a last one of
// few costs as many copies as the others.
inline int64_t queries_per_unit(const core_encode_args& a, const Plan& plan, int64_t length) {
  if (is_whole(plan, length) && a.rows * a.kv_heads >= kUnitsPerThread * a.threads) return length;
  int64_t tiles = ceil_div(length, plan.tile_queries), each = round_up(ceil_div(length, tiles), kEvenQueries);
  return each < plan.tile_queries ? each : plan.tile_queries;
}

// Unit `unit` of a row.
inline Range encoder_range(const core_encode_args& a, const Plan& plan, int64_t row, int64_t unit) {
  int64_t length = a.query_starts[row + 1] - a.query_starts[row], each = queries_per_unit(a, plan, length);
  Range range{row, unit % a.kv_heads, unit / a.kv_heads * each, 0, 0, length, -1};
  range.end = range.begin + each < length ? range.begin + each : length;
  if (a.reach >= 0) {
    range.first_key = range.begin > a.reach ? range.begin - a.reach : 0;
    range.last_key = range.end + a.reach < length ? range.end + a.reach : length;
  }
  return range;
}

template <typename P>
void encode_batch(const core_encode_args& a, int64_t head_dim) {
  core_attention_args wide = widened(a, head_dim);
  Plan plan = make_plan(wide, a.rows, P::kTileRows, P::kPass);
  TileLayout layout = tile_layout(plan.tile_rows, head_dim, head_dim, plan.pass);
  int64_t work = 0;
  for (int64_t row = 0; row < a.rows; ++row) {
    int64_t length = a.query_starts[row + 1] - a.query_starts[row];
    work += length * length * a.heads * head_dim;
  }
  auto length_of = [&](int64_t row) -> int64_t { return a.query_starts[row + 1] - a.query_starts[row]; };
  auto units_in = [&](int64_t row) -> int64_t {
    int64_t length = length_of(row);
    return length < 1 ? 0 : a.kv_heads * ceil_div(length, queries_per_unit(a, plan, length));
  };
  int64_t threads = work < kTeamWork ? 1 : a.threads;
  Dealt dealt(sum_of_units(a.rows, units_in), threads);
  run_pieces(threads, dealt.pieces(), [&](int64_t thread, Pieces& pieces) {
    char* mine = static_cast<char*>(a.scratch) + thread * encoder_bytes(plan.tile_rows, head_dim, plan.pass);
    Rows rows(a.rows, units_in);
    for (int64_t piece; pieces.take(&piece);) {
      if (!rows.find(dealt.unit(piece))) continue;
      Range range = encoder_range(a, plan, rows.row(), rows.within());
      Encoding<P> e{a, Tile<P>{wide, plan, mine, layout, range, Range{}}};
      bool whole = is_whole(plan, length_of(rows.row()));
      whole ? encode_whole(e, mine + round_up(layout.bytes, kAlign)) : encode_tile(e);
    }
  });
}

inline void encode_all(const core_encode_args& a) {
  if (a.dtype == CORE_F32) {
    return encode_batch<Products<float, Loops<Widened<float>>, true>>(a, round_up(a.head_dim, 16));
  }
#if defined(__AMX_BF16__)
  encode_batch<Products<bf16, Tiles, true>>(a, round_up(a.head_dim, 32));
#elif defined(CORE_ATTENTION_DOT)
  encode_batch<Products<bf16, Loops<Dot>, true>>(a, round_up(a.head_dim, 16));
#else
  encode_batch<Products<bf16, Loops<Widened<float>>, true>>(a, round_up(a.head_dim, 16));
#endif
}

}  // namespace

void encode(const core_encode_args* a) { encode_all(*a); }

}  // namespace CORE_VARIANT
}  // namespace core
