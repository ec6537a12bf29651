// Storage of latents and rotated keys. Layout: latent.h.
#pragma once

#include "attention/formats.h"
#include "attention/latent_plan.h"
#include "common/parallel.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// The scale of a part of any number of elements; see `scale_of`.
template <typename T>
float scale_of_part(const T* x, int64_t dims) {
  int64_t whole = dims / kVector * kVector;
  float scale = whole > 0 ? scale_of(x, whole) : 0.0f;
  if (whole == dims) return scale;
  T rest[kVector] = {};
  std::memcpy(rest, x + whole, static_cast<size_t>(dims - whole) * sizeof(T));
  float other = scale_of(rest, kVector);
  return other > scale || other != other ? other : scale;
}

// Rounds a part of any number of elements; behind it comes its scale, in formats that have one. Returns what follows.
template <typename S, typename T>
char* store_latent_part(const T* x, char* out, int64_t dims) {
  float scale = Format<S>::kScaled ? scale_of_part(x, dims) : 1.0f, divisor = scale != 0.0f ? scale : 1.0f;
  auto to = reinterpret_cast<S*>(out);
  for (int64_t d = 0; d < dims; d += kLanes) {
    int64_t here = dims - d < kLanes ? dims - d : kLanes;
    vf value = here == kLanes ? load(x + d) : load_part(x + d, here);
    S part[kLanes];
    narrow(part, Format<S>::kScaled ? value / divisor : value);
    std::memcpy(to + d, part, static_cast<size_t>(here) * sizeof(S));
  }
  out += dims * static_cast<int64_t>(sizeof(S));
  if constexpr (Format<S>::kScaled) {
    std::memcpy(out, &scale, sizeof(scale));
    out += sizeof(scale);
  }
  return out;
}

// Calls body(token, slot) for those of the tokens `begin .. end - 1` that are stored.
template <typename Body>
CORE_INLINE void for_stored(const core_latent_store_args& a, int64_t begin, int64_t end, const Body& body) {
  if (a.ratio == 1) {
    for (int64_t token = begin; token < end; ++token) body(token, a.slots[token]);
    return;
  }
  for (int64_t row = 0; row < a.rows && a.query_starts[row] < end; ++row) {
    int64_t first = a.query_starts[row], last = a.query_starts[row + 1], before = a.seq_lens[row] - last;
    for (int64_t token = begin > first ? begin : first; token < (end < last ? end : last); ++token) {
      if ((before + token + 1) % a.ratio == 0) body(token, a.slots[token] / a.ratio);
    }
  }
}

template <typename S, typename T>
void store_latents(const core_latent_store_args& a) {
  constexpr int64_t worth_a_team = 16384;  // elements
  int64_t size = latent_row_bytes(a.latent_dim, a.rope_dim, a.kv_dtype);
  parallel_for(a.tokens, a.threads, ceil_div(worth_a_team, a.latent_dim + a.rope_dim), [&](int64_t begin, int64_t end) {
    for_stored(a, begin, end, [&](int64_t token, int64_t slot) {
      char* out = static_cast<char*>(a.cache) + slot * size;
      out = store_latent_part<S>(static_cast<const T*>(a.latent) + token * a.latent_stride, out, a.latent_dim);
      if (a.rope_dim == 0) return;
      store_latent_part<S>(static_cast<const T*>(a.rope_key) + token * a.rope_stride, out, a.rope_dim);
    });
  });
}

template <typename S>
void store_latents(const core_latent_store_args& a) {
  a.dtype == CORE_BF16 ? store_latents<S, bf16>(a) : store_latents<S, float>(a);
}

}  // namespace

void latent_store(const core_latent_store_args* a) {
  switch (a->kv_dtype) {
    case CORE_F32: return store_latents<float>(*a);
    case CORE_BF16: return store_latents<bf16>(*a);
    case CORE_F16: return store_latents<f16>(*a);
    case CORE_F8_E4M3: return store_latents<e4m3>(*a);
    case CORE_F8_E5M2: return store_latents<e5m2>(*a);
    default: return store_latents<i8>(*a);
  }
}

}  // namespace CORE_VARIANT
}  // namespace core
