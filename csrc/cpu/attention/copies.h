// Copies of cached keys and values in the form that the products of many query vectors read fastest: float32, or
// bfloat16 in pairs for AMX; laid out like blocks of `kPanelKeys` tokens, so that the keys of a product stay in the
// first cache level while it goes over the query vectors.
#pragma once

#include <type_traits>

#include "attention/formats.h"
#include "attention/plan.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// Elements in a group: dimensions of a key, tokens of a value.
template <typename T>
constexpr int64_t kPackOf = std::is_same<T, bf16>::value ? 2 : 1;

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
  for (int64_t d = 0; d < head_dim; ++d) {
    for (int64_t k = 0; k < count; k += kLanes) store(out + d * kPanelKeys + k, load(keys + d * block_size + k));
  }
}

inline void copy_panel(const bf16* keys, float* out, int64_t head_dim, int64_t block_size, int64_t count) {
  for (int64_t d = 0; d < head_dim; d += 2) {
    for (int64_t k = 0; k < count; k += kLanes) {
      vu pairs = load_bits(keys + d * block_size + k * 2);
      store(out + d * kPanelKeys + k, as_float(pairs << 16));
      store(out + (d + 1) * kPanelKeys + k, as_float(pairs & 0xffff0000u));
    }
  }
}

// Values of the same tokens; `offset` is even.
template <typename S>
void copy_values(const S* values, float* out, int64_t head_dim, int64_t offset, int64_t count) {
  for (int64_t i = 0; i < count * head_dim; i += kLanes) store(out + i, load(values + offset * head_dim + i));
}

inline void copy_values(const bf16* values, float* out, int64_t head_dim, int64_t offset, int64_t count) {
  for (int64_t t = 0; t < count; t += 2) {
    for (int64_t d = 0; d < head_dim; d += kLanes) {
      vu pairs = load_bits(values + (offset + t) * head_dim + d * 2);
      store(out + t * head_dim + d, as_float(pairs << 16));
      if (t + 1 < count) store(out + (t + 1) * head_dim + d, as_float(pairs & 0xffff0000u));
    }
  }
}

// ---- bfloat16 in pairs ---------------------------------------------------------------------------------------------

CORE_INLINE vu pair_up(vf first, vf second) {
  return __builtin_convertvector(round_bf16(first), vu) | __builtin_convertvector(round_bf16(second), vu) << 16;
}

CORE_INLINE void store_pairs(bf16* p, vu pairs) { *reinterpret_cast<vu_mem*>(p) = pairs; }

template <typename S>
void copy_panel(const S* keys, bf16* out, int64_t head_dim, int64_t block_size, int64_t count) {
  for (int64_t d = 0; d < head_dim; d += 2) {
    for (int64_t k = 0; k < count; k += kLanes) {
      const S* at = keys + d * block_size + k;
      store_pairs(out + d * kPanelKeys + k * 2, pair_up(load(at), load(at + block_size)));
    }
  }
}

template <typename S>
void copy_values(const S* values, bf16* out, int64_t head_dim, int64_t offset, int64_t count) {
  for (int64_t t = 0; t < count; t += 2) {
    for (int64_t d = 0; d < head_dim; d += kLanes) {
      const S* at = values + (offset + t) * head_dim + d;
      vf second = t + 1 < count ? load(at + head_dim) : vf{};
      store_pairs(out + t * head_dim + d * 2, pair_up(load(at), second));
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
