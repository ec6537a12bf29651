// Copies of cached keys and values in the form that the products of many query vectors read fastest: float32, or
// bfloat16 in pairs for AMX; laid out like blocks of `kPanelKeys` tokens, so that the keys of a product stay in the
// first cache level while it goes over the query vectors.
#pragma once

#include "attention/formats.h"
#include "attention/plan.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// Calls body(place in the panel's copy, first key, count) for the panels under the `count` keys of a copy from
// `at` on.
template <typename T, typename Body>
CORE_INLINE void for_panels(T* copy, int64_t at, int64_t count, int64_t head_dim, const Body& body) {
  for (int64_t k = 0; k < count;) {
    int64_t lane = (at + k) % kPanelKeys, left = kPanelKeys - lane, here = left < count - k ? left : count - k;
    body(copy + (at + k - lane) * head_dim + lane * kPackOf<T>, k, here);
    k += here;
  }
}

// ---- float32 -------------------------------------------------------------------------------------------------------

// One panel's share of the keys from `keys` on, whose dimensions lie `block_size` apart.
template <typename S>
void copy_panel(const S* keys, float* out, int64_t head_dim, int64_t block_size, int64_t count) {
  constexpr int64_t pack = kPackOf<S>;
  for (int64_t d = 0; d < head_dim; d += pack) {
    for (int64_t k = 0; k < count; k += kLanes) {
      const S* at = keys + d * block_size + k * pack;
      float* to = out + d * kPanelKeys + k;
      if constexpr (pack == 1) {
        store(to, load(at));
      } else {
        Pairs pairs = load_pairs(at);
        store(to, pairs.first);
        store(to + kPanelKeys, pairs.second);
      }
    }
  }
}

// Values of the same tokens; `offset` is even.
template <typename S>
void copy_values(const S* values, float* out, int64_t head_dim, int64_t offset, int64_t count) {
  constexpr int64_t pack = kPackOf<S>;
  for (int64_t t = 0; t < count; t += pack) {
    for (int64_t d = 0; d < head_dim; d += kLanes) {
      const S* at = values + (offset + t) * head_dim + d * pack;
      float* to = out + t * head_dim + d;
      if constexpr (pack == 1) {
        store(to, load(at));
      } else {
        Pairs pairs = load_pairs(at);
        store(to, pairs.first);
        if (t + 1 < count) store(to + head_dim, pairs.second);
      }
    }
  }
}

// ---- bfloat16 in pairs ---------------------------------------------------------------------------------------------

CORE_INLINE vu pair_up(vf first, vf second) {
  return __builtin_convertvector(round_bf16(first), vu) | __builtin_convertvector(round_bf16(second), vu) << 16;
}

CORE_INLINE void store_pairs(bf16* p, vu pairs) { *reinterpret_cast<vu_mem*>(p) = pairs; }

// Elements that lie in pairs, or `apart`.
template <typename S>
CORE_INLINE Pairs load_pairs(const S* p, int64_t apart) {
  if constexpr (kPackOf<S> == 2) return load_pairs(p);
  else return {load(p), load(p + apart)};
}

template <typename S>
void copy_panel(const S* keys, bf16* out, int64_t head_dim, int64_t block_size, int64_t count) {
  for (int64_t d = 0; d < head_dim; d += 2) {
    for (int64_t k = 0; k < count; k += kLanes) {
      Pairs pairs = load_pairs(keys + d * block_size + k * kPackOf<S>, block_size);
      store_pairs(out + d * kPanelKeys + k * 2, pair_up(pairs.first, pairs.second));
    }
  }
}

template <typename S>
void copy_values(const S* values, bf16* out, int64_t head_dim, int64_t offset, int64_t count) {
  for (int64_t t = 0; t < count; t += 2) {
    int64_t apart = t + 1 < count ? head_dim : 0;  // behind the last one lies no token
    for (int64_t d = 0; d < head_dim; d += kLanes) {
      Pairs pairs = load_pairs(values + (offset + t) * head_dim + d * kPackOf<S>, apart);
      store_pairs(out + t * head_dim + d * 2, pair_up(pairs.first, apart > 0 ? pairs.second : vf{}));
    }
  }
}

// Keys `offset .. offset + count - 1` of a block, a multiple of 16, to places `at ..` of a copy.
template <typename S, typename T>
void copy_keys(const S* keys, T* copy, int64_t at, int64_t head_dim, int64_t block_size, int64_t offset,
               int64_t count) {
  for_panels(copy, at, count, head_dim, [&](T* out, int64_t k, int64_t here) {
    copy_panel(keys + (offset + k) * kPackOf<S>, out, head_dim, block_size, here);
  });
}

// Zeroes values from `count` to the next multiple of `step`, which the products read with weights of 0: what a
// scratch memory holds may be no number.
template <typename T>
void clear_values(T* out, int64_t head_dim, int64_t count, int64_t step) {
  int64_t end = round_up(count, step);
  int64_t even = round_up(count, kPackOf<T>);  // a pair is written whole
  std::memset(out + even * head_dim, 0, static_cast<size_t>((end - even) * head_dim) * sizeof(T));
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
