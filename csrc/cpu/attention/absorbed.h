// Latent attention in the absorbed form: the query vectors of all heads share a pass over the latents.
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

template <typename P>
void load_absorbed(const LatentWork<P>& w, const Tile<P>& t) {
  const core_latent_attention_args& a = w.a;
  for (int64_t r = 0; r < t.rows(); ++r) {
    typename P::Query* out = t.q() + r * P::words(w.n.absorbed());
    int64_t token = t.token(r), head = t.query_head(r);
    load_vector<P>(a.dtype, a.absorbed, (token * a.heads + head) * w.n.latent, out, w.n.latent);
    int64_t at = token * a.rope_stride + head * a.rope_head_stride;
    load_vector<P>(a.dtype, a.q_rope, at, out + P::words(w.n.latent), a.rope_dim);
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

template <typename P>
void attend_absorbed(const LatentWork<P>& w, const Range& range, char* scratch) {
  using T = typename P::T;
  AbsorbedLayout layout = absorbed_layout(w.n, w.plan.tile_rows);
  Tile<P> t{w.same, w.plan, scratch, layout.tile, range, Range{}, kTileKeys};
  auto values = reinterpret_cast<T*>(scratch + layout.values), stage = reinterpret_cast<T*>(scratch + layout.stage);
  int64_t dims = w.n.absorbed(), last = range.last_key, end = round_up(last, P::kKeys);
  LatentCopies<P> copies{t.copy(), dims, t.copy(), dims, w.n.latent, values, nullptr, stage};
  load_absorbed(w, t);
  P::enter(t.rows());
  for (int64_t first = range.first_key / P::kKeys * P::kKeys; first < end; first += kTileKeys) {
    int64_t count = end - first < kTileKeys ? end - first : kTileKeys, seen = last - first < count ? last - first : count;
    copy_pass(w.a, copies, range.row, first, seen);
    score_panels(t, t.copy(), dims, count);
    weigh_pass(t, first, count, seen);
    clear_values(values, w.n.latent, seen, P::kKeys);
    P::accumulate(t.p(), P::words(t.stride()), values, t.o(), t.corrections(), t.rows(), w.n.latent, 0, seen);
  }
  P::leave();
  if (range.partial < 0) return write_tile(t, w.a.dtype, w.a.found, w.same.out_stride, w.n.latent);
  write_partial(t, w.partials + range.partial * partial_floats(w.plan.group, w.n.latent));
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
