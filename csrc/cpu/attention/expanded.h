// Latent attention in the expanded form: keys and values of one head are made of the latents, pass by pass, for all
// tiles of a chunk of queries.
#pragma once

#include "attention/absorbed.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// A chunk of the queries of a row for one head, and what it works with.
template <typename P>
struct Expanded {
  const LatentWork<P>& w;
  core_attention_args same;  // with values of the head instead of latents
  Plan plan;                 // of single heads
  ExpandedLayout layout;
  Range range;
  char* scratch;

  using T = typename P::T;

  template <typename Element>
  Element* at(int64_t offset) const {
    return reinterpret_cast<Element*>(scratch + offset);
  }
  int64_t tiles() const { return ceil_div(range.end - range.begin, plan.tile_rows); }
  Tile<P> tile(int64_t index) const {
    TileLayout own = layout.tile;
    own.q += index * layout.next_q;
    own.o += index * layout.next_o;
    own.stats += index * layout.next_stats;
    Range part = range;
    part.begin += index * plan.tile_rows;
    if (part.end > part.begin + plan.tile_rows) part.end = part.begin + plan.tile_rows;
    return Tile<P>{same, plan, scratch, own, part, Range{}, kTileKeys};
  }
};

// The up-projections of the head: rows of the keys' as query vectors, those of the values' as values.
template <typename P>
void load_up(const Expanded<P>& e) {
  const core_latent_attention_args& a = e.w.a;
  const LatentSizes& n = e.w.n;
  auto key_rows = e.template at<typename P::Query>(e.layout.key_rows);
  for (int64_t k = 0; k < n.key; ++k) {
    int64_t from = (e.range.head * n.key + k) * n.latent;
    load_vector<P>(a.dtype, a.key, from, key_rows + k * P::words(n.latent), n.latent);
  }
  auto up = e.template at<typename P::T>(e.layout.values_up);
  int64_t from = e.range.head * n.latent * n.value;
  if constexpr (std::is_same<typename P::T, float>::value) {
    if (a.dtype == CORE_F32) {
      return copy_value_rows(static_cast<const float*>(a.value) + from, n.value, up, n.value, n.value, n.latent);
    }
  }
  copy_value_rows(static_cast<const bf16*>(a.value) + from, n.value, up, n.value, n.value, n.latent);
}

template <typename P>
void load_chunk(const Expanded<P>& e) {
  const core_latent_attention_args& a = e.w.a;
  const LatentSizes& n = e.w.n;
  for (int64_t i = 0; i < e.tiles(); ++i) {
    Tile<P> t = e.tile(i);
    for (int64_t r = 0; r < t.rows(); ++r) {
      typename P::Query* out = t.q() + r * P::words(n.expanded());
      int64_t token = t.token(r), head = e.range.head;
      load_vector<P>(a.dtype, a.q, token * a.q_stride + head * a.q_head_stride, out, a.key_dim);
      int64_t at = token * a.rope_stride + head * a.rope_head_stride;
      load_vector<P>(a.dtype, a.q_rope, at, out + P::words(n.key), a.rope_dim);
    }
    clear_results(t);
  }
}

// Makes keys and values of `count` positions from `first` on, of which there are `seen`.
template <typename P>
void make_pass(const Expanded<P>& e, int64_t first, int64_t count, int64_t seen) {
  using T = typename P::T;
  const LatentSizes& n = e.w.n;
  auto latents = e.template at<T>(e.layout.latents), keys = e.template at<T>(e.layout.keys);
  auto rows = e.template at<typename P::Query>(e.layout.rows);
  auto made = e.template at<float>(e.layout.made);
  LatentCopies<P> copies{latents, keys, n.expanded(), n.key, nullptr, rows, n.latent, e.template at<T>(e.layout.stage)};
  copy_pass(e.w.a, copies, e.range.row, first, seen);
  P::enter(n.key);
  for (int64_t k = 0; k < count; k += kPanelKeys) {
    int64_t here = count - k < kPanelKeys ? count - k : kPanelKeys;
    P::scores(e.template at<typename P::Query>(e.layout.key_rows), latents + k * n.latent, made + k, kMadeStride, n.key,
              n.latent, kPanelKeys, 0, here);
    copy_panel(made + k, keys + k * n.expanded(), n.key, kMadeStride, here);
  }
  P::enter(seen);
  std::memset(made, 0, static_cast<size_t>(seen * n.value) * 4);
  auto up = e.template at<T>(e.layout.values_up);
  P::accumulate(rows, P::words(n.latent), up, made, nullptr, seen, n.value, 0, n.latent);
  auto values = e.template at<T>(e.layout.values);
  copy_values(made, values, n.value, 0, seen);
  clear_values(values, n.value, seen, P::kKeys);
}

// One tile against the keys of a pass.
template <typename P>
void attend_made(const Expanded<P>& e, const Tile<P>& t, int64_t first, int64_t seen) {
  using T = typename P::T;
  const LatentSizes& n = e.w.n;
  int64_t last = t.position(t.rows() - 1) + 1 - first;
  if (last <= 0) return;
  seen = last < seen ? last : seen;
  int64_t count = round_up(seen, P::kKeys);
  P::enter(t.rows());
  score_panels(t, e.template at<T>(e.layout.keys), n.expanded(), count);
  weigh_pass(t, first, count, seen);
  auto values = e.template at<T>(e.layout.values);
  P::accumulate(t.p(), P::words(t.stride()), values, t.o(), t.corrections(), t.rows(), n.value, 0, seen);
}

template <typename P>
void attend_expanded(const LatentWork<P>& w, const Range& range, char* scratch) {
  core_attention_args same = w.same;
  same.head_dim = w.n.value;
  same.kv_heads = same.heads;
  Plan plan = make_plan(same, same.rows, P::kTileRows, kTileKeys);
  Expanded<P> e{w, same, plan, expanded_layout(w.n, plan.tile_rows), range, scratch};
  load_up(e);
  load_chunk(e);
  int64_t tiles = e.tiles(), last = range.last_key;
  for (int64_t first = 0; first < last; first += kTileKeys) {
    int64_t seen = last - first < kTileKeys ? last - first : kTileKeys;
    make_pass(e, first, round_up(seen, P::kKeys), seen);
    for (int64_t i = 0; i < tiles; ++i) attend_made(e, e.tile(i), first, seen);
  }
  P::leave();
  int64_t dims = w.a.value_dim;
  for (int64_t i = 0; i < tiles; ++i) write_tile(e.tile(i), w.a.dtype, w.a.out, w.a.heads * dims, dims);
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
