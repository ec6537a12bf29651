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

// Brings up to 16 query vectors from number `r` on into the panels.
template <typename P, typename Q>
void load_panel(const LatentWork<P>& w, const Tile<P>& t, int64_t r, typename P::T* panels, char* stage) {
  const core_latent_attention_args& a = w.a;
  int64_t count = t.rows() - r < 16 ? t.rows() - r : 16, dims = w.n.absorbed();
  auto rotated = reinterpret_cast<Q*>(stage);
  std::memset(stage, 0, static_cast<size_t>(count * w.n.rope) * sizeof(Q));
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = t.token(r + i) * a.rope_stride + t.query_head(r + i) * a.rope_head_stride;
    std::memcpy(rotated + i * w.n.rope, static_cast<const Q*>(a.q_rope) + at, static_cast<size_t>(a.rope_dim) * sizeof(Q));
  }
  auto absorbed = static_cast<const Q*>(a.absorbed) + (t.token(r) * a.heads + t.query_head(r)) * w.n.latent;
  transpose_keys(absorbed, w.n.latent, panel_at(panels, r, dims, 0), w.n.latent, w.n.latent, count);
  transpose_keys(rotated, w.n.rope, panel_at(panels, r, dims, w.n.latent), w.n.rope, w.n.rope, count);
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

// Products of `count` keys, row by row, with all query vectors: those of a key next to each other.
template <typename P>
void multiply_rows(const Tile<P>& t, const typename P::Query* keys, const typename P::T* panels, int64_t dims,
                   float* out, int64_t stride, int64_t count) {
  P::enter(count);
  int64_t vectors = round_up(t.rows(), P::kKeys);
  for (int64_t r = 0; r < vectors; r += kPanelKeys) {
    int64_t here = vectors - r < kPanelKeys ? vectors - r : kPanelKeys;
    P::scores(keys, panels + r * dims, out + r, stride, count, dims, kPanelKeys, 0, here);
  }
}

// The same with the keys where they lie.
template <typename P>
void multiply_cached_rows(const LatentWork<P>& w, const Tile<P>& t, const typename P::T* panels, float* out,
                          int64_t stride, int64_t first, int64_t count) {
  const core_latent_attention_args& a = w.a;
  const int32_t* table = a.table + t.range.row * a.table_stride;
  int64_t dims = w.n.absorbed();
  for (int64_t done = 0; done < count;) {
    int64_t key = first + done, offset = key % a.block_size;
    int64_t here = a.block_size - offset < count - done ? a.block_size - offset : count - done;
    auto block = static_cast<const typename P::T*>(a.cache) + (table[key / a.block_size] * a.block_size + offset) * dims;
    multiply_rows(t, reinterpret_cast<const typename P::Query*>(block), panels, dims, out + done * stride, stride, here);
    done += here;
  }
}

template <typename P>
void attend_absorbed(const LatentWork<P>& w, const Range& range, char* scratch) {
  using T = typename P::T;
  AbsorbedLayout layout = absorbed_layout(w.n, w.plan.tile_rows);
  Tile<P> t{w.same, w.plan, scratch, layout.tile, range, Range{}, kTileKeys};
  auto values = reinterpret_cast<T*>(scratch + layout.values), stage = reinterpret_cast<T*>(scratch + layout.stage);
  auto panels = reinterpret_cast<T*>(t.q());
  auto rows = reinterpret_cast<typename P::Query*>(t.copy());
  auto turned = reinterpret_cast<float*>(scratch + layout.turned);
  int64_t dims = w.n.absorbed(), last = range.last_key, end = round_up(last, P::kKeys), stride = layout.turned_stride;
  bool direct = reads_rows(w);
  LatentCopies<P> copies{nullptr, nullptr, 0, 0, values, direct ? nullptr : rows, dims, stage};
  load_panels(w, t, panels, scratch + layout.stage);
  for (int64_t first = range.first_key / P::kKeys * P::kKeys; first < end; first += kTileKeys) {
    int64_t count = end - first < kTileKeys ? end - first : kTileKeys, seen = last - first < count ? last - first : count;
    copy_pass(w.a, copies, range.row, first, seen);
    direct ? multiply_cached_rows(w, t, panels, turned, stride, first, seen)
           : multiply_rows(t, rows, panels, dims, turned, stride, seen);
    turn(turned, stride, t.s(), t.stride(), seen, t.rows());
    weigh_pass(t, first, count, seen);
    clear_values(values, w.n.latent, seen, P::kKeys);
    P::enter(t.rows());
    P::accumulate(t.p(), P::words(t.stride()), values, t.o(), t.corrections(), t.rows(), w.n.latent, 0, seen);
  }
  P::leave();
  if (range.partial < 0) return write_tile(t, w.a.dtype, w.a.found, w.same.out_stride, w.n.latent);
  write_partial(t, w.partials + range.partial * partial_floats(w.plan.group, w.n.latent));
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
