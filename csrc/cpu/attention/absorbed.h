// Latent attention in the absorbed form: the query vectors of all heads share a pass over the latents.
//
// Latents lie token by token, and so the products of scores take the keys for their rows, and for the panels the query
// vectors, which are brought into that form once: it is the scores that are turned then, not the keys.
#pragma once

#include "attention/latent_copies.h"
#include "attention/splits.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// The same as an attention call, as far as tiles know it: one kv head, whose values are latents.
inline core_attention_args as_attention(const core_latent_attention_args& a, const LatentSizes& n) {
  core_attention_args same{};
  same.out = a.found;
  same.query_starts = a.query_starts;
  same.seq_lens = a.seq_lens;
  same.rows = a.rows;
  same.heads = a.heads;
  same.kv_heads = 1;
  same.head_dim = n.latent;
  same.out_stride = a.heads * n.latent;
  same.dtype = a.dtype;
  same.threads = a.threads;
  same.scale = a.scale;
  same.value_scale = 1.0;
  return same;
}

// What units of work share.
template <typename P>
struct LatentWork {
  const core_latent_attention_args& a;
  LatentSizes n;
  core_attention_args same;
  Plan plan;
  float* partials;
};

// Query vectors of a panel: no more than there are, so that the first cache level holds the only one of few heads.
template <typename P>
int64_t panel_width(const Tile<P>& t) {
  return t.rows() <= P::kKeys ? P::kKeys : kPanelKeys;
}

// Brings up to 16 query vectors from number `r` on into the panels.
template <typename P, typename Q>
void load_panel(const LatentWork<P>& w, const Tile<P>& t, int64_t r, typename P::T* panels, char* stage) {
  const core_latent_attention_args& a = w.a;
  int64_t count = t.rows() - r < 16 ? t.rows() - r : 16, dims = w.n.absorbed(), width = panel_width(t);
  auto rotated = reinterpret_cast<Q*>(stage);
  std::memset(stage, 0, static_cast<size_t>(count * w.n.rope) * sizeof(Q));
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = t.token(r + i) * a.rope_stride + t.query_head(r + i) * a.rope_head_stride;
    auto from = static_cast<const Q*>(a.q_rope) + at;
    std::memcpy(rotated + i * w.n.rope, from, static_cast<size_t>(a.rope_dim) * sizeof(Q));
  }
  auto absorbed = static_cast<const Q*>(a.absorbed) + (t.token(r) * a.heads + t.query_head(r)) * w.n.latent;
  transpose_keys(absorbed, w.n.latent, panel_at(panels, r, dims, 0, width), w.n.latent, w.n.latent, count, width);
  transpose_keys(rotated, w.n.rope, panel_at(panels, r, dims, w.n.latent, width), w.n.rope, w.n.rope, count, width);
}

template <typename P>
void load_panels(const LatentWork<P>& w, const Tile<P>& t, typename P::T* panels, char* stage) {
  for (int64_t r = 0; r < t.rows(); r += 16) {
    if constexpr (!P::kBfloat16Queries) {
      if (w.a.dtype == CORE_F32) {
        load_panel<P, float>(w, t, r, panels, stage);
        continue;
      }
    }
    load_panel<P, bf16>(w, t, r, panels, stage);
  }
  clear_results(t);
}

template <typename T>
void write_found(const float* from, float inverse, T* out, int64_t dims) {
  int64_t d = 0;
  for (; d + kLanes <= dims; d += kLanes) store(out + d, load(from + d) * inverse);
  if (d < dims) store_part(out + d, load(from + d) * inverse, dims - d);
}

// Writes each query vector's `dims` results; those of a token are `stride` numbers.
template <typename P>
void write_tile(const Tile<P>& t, int64_t dtype, void* out, int64_t stride, int64_t dims) {
  for (int64_t r = 0; r < t.rows(); ++r) {
    int64_t at = t.token(r) * stride + t.query_head(r) * dims;
    const float* from = t.o() + r * t.a.head_dim;
    float inverse = 1.0f / t.sums()[r];
    dtype == CORE_BF16 ? write_found(from, inverse, static_cast<bf16*>(out) + at, dims)
                       : write_found(from, inverse, static_cast<float*>(out) + at, dims);
  }
}

// Whether the cache's rows are query vectors of the products as they lie.
template <typename P>
bool reads_rows(const LatentWork<P>& w) {
  bool same = std::is_same<typename P::T, bf16>::value ? w.a.kv_dtype == CORE_BF16 : w.a.kv_dtype == CORE_F32;
  return same && w.a.latent_dim == w.n.latent && w.a.rope_dim == w.n.rope;
}

constexpr int64_t kAskedKeys = 16;  // keys that are asked for at a time: fewer than what waits for memory at once

// What a tile in the absorbed form works with.
template <typename P>
struct Absorbed {
  using T = typename P::T;
  using Query = typename P::Query;
  // Whether rows of keys are values too.
  static constexpr bool kShared = std::is_same<Query, T>::value && kPackOf<T> == 1;

  const LatentWork<P>& w;
  Tile<P> t;
  AbsorbedLayout layout;
  int64_t dims, row_bytes;
  bool direct;

  T* panels() const { return reinterpret_cast<T*>(t.q()); }
  Query* rows() const { return reinterpret_cast<Query*>(t.copy()); }
  T* values() const { return reinterpret_cast<T*>(t.scratch + layout.values); }
  T* stage() const { return reinterpret_cast<T*>(t.scratch + layout.stage); }
  float* turned() const { return reinterpret_cast<float*>(t.scratch + layout.turned); }
  const char* cached(int64_t key) const {
    int64_t block = w.a.table[t.range.row * w.a.table_stride + key / w.a.block_size];
    return static_cast<const char*>(w.a.cache) + (block * w.a.block_size + key % w.a.block_size) * row_bytes;
  }
};

// Asks for the rows of `count` keys, at most `kAskedKeys` of one block. The processor's own prefetching ends at a page.
template <typename P>
CORE_INLINE void ask_rows(const Absorbed<P>& e, int64_t first, int64_t count) {
  const char* from = e.cached(first);
  for (int64_t at = 0; at < count * e.row_bytes; at += 64) __builtin_prefetch(from + at, 0, 2);
}

// Products of the `seen` keys from `first` on with all query vectors: those of a key lie next to each other.
template <typename P>
void multiply_rows(const Absorbed<P>& e, int64_t first, int64_t seen) {
  int64_t vectors = round_up(e.t.rows(), P::kKeys), stride = e.layout.turned_stride, entered = 0;
  int64_t width = panel_width(e.t);
  for (int64_t done = 0; done < seen; done += kAskedKeys) {
    int64_t here = seen - done < kAskedKeys ? seen - done : kAskedKeys, next = first + kTileKeys + done;
    if (next < e.t.range.last_key) {
      ask_rows(e, next, e.t.range.last_key - next < kAskedKeys ? e.t.range.last_key - next : kAskedKeys);
    }
    if (here != entered) P::enter(here);
    entered = here;
    auto keys = e.direct ? reinterpret_cast<const typename P::Query*>(e.cached(first + done))
                         : e.rows() + P::words(done * e.dims);
    for (int64_t r = 0; r < vectors; r += width) {
      int64_t some = vectors - r < width ? vectors - r : width;
      P::scores(keys, e.panels() + r * e.dims, e.turned() + done * stride + r, stride, here, e.dims, width, 0, some);
    }
  }
}

template <typename P>
void gather_latents(const Absorbed<P>& e, int64_t seen) {
  const Tile<P>& t = e.t;
  int64_t latent = e.w.n.latent, weights = P::words(t.stride());
  P::enter(t.rows());
  if constexpr (Absorbed<P>::kShared) {
    P::accumulate_apart(t.p(), weights, e.rows(), e.dims, t.o(), t.corrections(), t.rows(), latent, 0, seen);
  } else {
    clear_values(e.values(), latent, seen, P::kKeys);
    P::accumulate(t.p(), weights, e.values(), t.o(), t.corrections(), t.rows(), latent, 0, seen);
  }
}

template <typename P>
void attend_absorbed(const LatentWork<P>& w, const Range& range, char* scratch) {
  AbsorbedLayout layout = absorbed_layout(w.n, w.plan.tile_rows);
  Absorbed<P> e{w, Tile<P>{w.same, w.plan, scratch, layout.tile, range, Range{}, kTileKeys}, layout, w.n.absorbed(),
                latent_row_bytes(w.a.latent_dim, w.a.rope_dim, w.a.kv_dtype), !Absorbed<P>::kShared && reads_rows(w)};
  const Tile<P>& t = e.t;
  LatentCopies<P> copies{nullptr, nullptr, 0, 0, Absorbed<P>::kShared ? nullptr : e.values(),
                         e.direct ? nullptr : e.rows(), e.dims, e.stage()};
  load_panels(w, t, e.panels(), scratch + layout.stage);
  int64_t last = range.last_key, end = round_up(last, P::kKeys);
  for (int64_t first = range.first_key / P::kKeys * P::kKeys; first < end; first += kTileKeys) {
    int64_t count = end - first < kTileKeys ? end - first : kTileKeys;
    int64_t seen = last - first < count ? last - first : count;
    copy_pass(w.a, copies, range.row, first, seen);
    multiply_rows(e, first, seen);
    turn(e.turned(), layout.turned_stride, t.s(), t.stride(), seen, t.rows());
    weigh_pass(t, first, count, seen);
    gather_latents(e, seen);
  }
  P::leave();
  if (range.partial < 0) return write_tile(t, w.a.dtype, w.a.found, w.same.out_stride, w.n.latent);
  write_partial(t, w.partials + range.partial * partial_floats(w.plan.group, w.n.latent));
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
