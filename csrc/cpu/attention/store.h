// Storage of keys and values in the paged cache, rounded to its format. Layouts: attention.h.
#pragma once

#include "attention/formats.h"
#include "common/parallel.h"

namespace core {
namespace CORE_VARIANT {
namespace {

constexpr int64_t kMostHeadDim = 256;

// One token of one kv head.
template <typename S>
void place_key(S* head, const S* k, int64_t offset, int64_t block_size, int64_t head_dim) {
  constexpr int64_t pack = kPackOf<S>;
  for (int64_t d = 0; d < head_dim; d += pack) {
    std::memcpy(head + (d * block_size + offset * pack), k + d, pack * sizeof(S));
  }
}

template <typename S>
void place_value(S* head, const S* v, int64_t offset, int64_t head_dim) {
  if constexpr (kPackOf<S> == 1) {
    std::memcpy(head + offset * head_dim, v, static_cast<size_t>(head_dim) * sizeof(S));
  } else {
    S* pairs = head + (offset / 2 * head_dim * 2 + offset % 2);
    for (int64_t d = 0; d < head_dim; ++d) pairs[d * 2] = v[d];
  }
}

template <typename S>
void place_scale(S* head, float scale, int64_t offset, int64_t block_size, int64_t head_dim) {
  if constexpr (Format<S>::kScaled) {
    std::memcpy(head + block_size * head_dim + offset * 4, &scale, sizeof(scale));
  }
}

template <typename S, typename T>
void store_token(const core_store_kv_args& a, int64_t token) {
  int64_t block = a.slots[token] / a.block_size, offset = a.slots[token] % a.block_size;
  int64_t per_head = head_elements<S>(a.block_size, a.head_dim);
  S* keys = static_cast<S*>(a.cache) + block * a.block_stride;
  S* values = keys + a.kv_heads * per_head;
  alignas(64) S row[kMostHeadDim];
  for (int64_t head = 0; head < a.kv_heads; ++head, keys += per_head, values += per_head) {
    auto k = static_cast<const T*>(a.k) + token * a.k_stride + head * a.head_dim;
    auto v = static_cast<const T*>(a.v) + token * a.v_stride + head * a.head_dim;
    float key_scale = narrow_row(k, row, a.head_dim, static_cast<float>(a.key_scale));
    place_key(keys, row, offset, a.block_size, a.head_dim);
    place_scale(keys, key_scale, offset, a.block_size, a.head_dim);
    float value_scale = narrow_row(v, row, a.head_dim, static_cast<float>(a.value_scale));
    place_value(values, row, offset, a.head_dim);
    place_scale(values, value_scale, offset, a.block_size, a.head_dim);
  }
}

template <typename S>
void store_kv(const core_store_kv_args& a) {
  constexpr int64_t worth_a_team = 16384;  // elements
  int64_t grain = ceil_div(worth_a_team, 2 * a.kv_heads * a.head_dim);
  parallel_for(a.tokens, a.threads, grain, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      a.dtype == CORE_BF16 ? store_token<S, bf16>(a, token) : store_token<S, float>(a, token);
    }
  });
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
