// Latent attention in the absorbed form: the query vectors of all heads share a pass over the latents.
//
// Latents lie token by token, and so the products of scores take the keys for their rows, and for the panels the query
// vectors, which are brought into that form once: it is the scores that are turned then, not the keys.
//
// Where queries see picked positions each has a tile of its own, whose keys are gathered from wherever they lie.
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

// What units of work share. `single`: the plan of rows whose queries see picked positions. `ratio`: tokens of a key.
template <typename P>
struct LatentWork {
  const core_latent_attention_args& a;
  LatentSizes n;
  core_attention_args same;
  Plan plan, single;
  float* partials;
  int64_t ratio = 1;

  int64_t keys_of(int64_t row) const { return a.seq_lens[row] / ratio; }
  bool picks(int64_t row) const { return is_picked(keys_of(row), a.picks); }
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
  bool direct, apart;  // whether keys are read as they lie; whether sixteen may lie in several blocks
  const int32_t* positions = nullptr;  // that are seen; null: all, in order

  T* panels() const { return reinterpret_cast<T*>(t.q()); }
  Query* rows() const { return reinterpret_cast<Query*>(t.copy()); }
  T* values() const { return reinterpret_cast<T*>(t.scratch + layout.values); }
  T* stage() const { return reinterpret_cast<T*>(t.scratch + layout.stage); }
  float* turned() const { return reinterpret_cast<float*>(t.scratch + layout.turned); }
  char* gathered() const { return t.scratch + layout.gathered; }
  const char* cached(int64_t key) const {
    return cached_row(w.a, t.range.row, positions == nullptr ? key : positions[key], row_bytes);
  }
};

// Asks for the rows of `count` keys, at most `kAskedKeys` of one block, or wherever they lie. The processor's own
// prefetching ends at a page.
template <typename P>
CORE_INLINE void ask_rows(const Absorbed<P>& e, int64_t first, int64_t count) {
  int64_t together = e.apart ? 1 : count;
  for (int64_t key = first; key < first + count; key += together) {
    const char* from = e.cached(key);
    for (int64_t at = 0; at < together * e.row_bytes; at += 64) __builtin_prefetch(from + at, 0, 2);
  }
}

// Products of the `seen` keys from `first` on with all query vectors: those of a key lie next to each other. There are
// keys up to `last_key`.
template <typename P>
void multiply_rows(const Absorbed<P>& e, int64_t first, int64_t seen, int64_t last_key) {
  int64_t vectors = round_up(e.t.rows(), P::kKeys), stride = e.layout.turned_stride, entered = 0;
  int64_t width = panel_width(e.t);
  for (int64_t done = 0; done < seen; done += kAskedKeys) {
    int64_t here = seen - done < kAskedKeys ? seen - done : kAskedKeys, next = first + kTileKeys + done;
    if (next < last_key) ask_rows(e, next, last_key - next < kAskedKeys ? last_key - next : kAskedKeys);
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

// Copies `seen` keys from number `first` on; those that lie apart are brought together first.
template <typename P>
void copy_keys_of(const Absorbed<P>& e, const LatentCopies<P>& copies, int64_t first, int64_t seen) {
  if (!e.apart) return copy_pass(e.w.a, copies, e.t.range.row, first, seen);
  copy_found(e.w.a, copies, seen, [&](int64_t done, int64_t here) {
    char* to = e.gathered();
    for (int64_t i = 0; i < here; ++i, to += e.row_bytes) {
      std::memcpy(to, e.cached(first + done + i), static_cast<size_t>(e.row_bytes));
    }
    return static_cast<const char*>(e.gathered());
  });
}

// Attends to the keys `first_key .. last_key - 1`.
template <typename P>
void attend_keys(const Absorbed<P>& e, int64_t first_key, int64_t last_key) {
  const Tile<P>& t = e.t;
  LatentCopies<P> copies{nullptr, nullptr, 0, 0, Absorbed<P>::kShared ? nullptr : e.values(),
                         e.direct ? nullptr : e.rows(), e.dims, e.stage()};
  int64_t end = round_up(last_key, P::kKeys);
  for (int64_t first = first_key / P::kKeys * P::kKeys; first < end; first += kTileKeys) {
    int64_t count = end - first < kTileKeys ? end - first : kTileKeys;
    int64_t seen = last_key - first < count ? last_key - first : count;
    copy_keys_of(e, copies, first, seen);
    multiply_rows(e, first, seen, last_key);
    turn(e.turned(), e.layout.turned_stride, t.s(), t.stride(), seen, t.rows());
    e.positions == nullptr ? weigh_pass(t, first, count, seen, e.w.ratio) : weigh_all(t, count, seen);
    gather_latents(e, seen);
  }
  P::leave();
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
