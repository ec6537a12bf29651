// Scores of index queries: index keys of a pass are brought into the form of `copies.h` once for all queries of a unit.
#pragma once

#include "attention/latent_copies.h"
#include "attention/pick_plan.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// Writes an index key as it is stored, without its scale, and zeros behind it up to `dims`. Returns its scale.
template <typename S, typename T>
float open_key(const char* row, T* out, int64_t key_dim, int64_t dims) {
  auto from = reinterpret_cast<const S*>(row);
  for (int64_t d = 0; d < dims; d += kLanes) {
    int64_t left = key_dim - d;
    store(out + d, left >= kLanes ? load(from + d) : left > 0 ? load_part(from + d, left) : vf{});
  }
  float scale = Format<S>::kUnit;
  if constexpr (Format<S>::kScaled) std::memcpy(&scale, row + key_dim * static_cast<int64_t>(sizeof(S)), 4);
  return scale;
}

// The scores of a unit's queries, one after the other.
template <typename P>
struct IndexScores {
  using T = typename P::T;
  using Query = typename P::Query;

  const core_pick_args& a;
  const PickLayout& layout;
  char* scratch;
  int64_t row;

  Query* query(int64_t i) const {
    return reinterpret_cast<Query*>(scratch + layout.q) + i * a.heads * P::words(layout.dims);
  }
  T* keys() const { return reinterpret_cast<T*>(scratch + layout.keys); }
  T* stage() const { return reinterpret_cast<T*>(scratch + layout.stage); }
  float* scales() const { return reinterpret_cast<float*>(scratch + layout.scales); }
  float* products() const { return reinterpret_cast<float*>(scratch + layout.products); }
  float* scores() const { return reinterpret_cast<float*>(scratch + layout.scores); }

  // Brings the query of a token into the products' form, as number `i` of the unit.
  void load(int64_t token, int64_t i) const {
    int64_t words = P::words(layout.dims);
    std::memset(query(i), 0, static_cast<size_t>(a.heads * words) * sizeof(Query));
    for (int64_t head = 0; head < a.heads; ++head) {
      int64_t at = token * a.q_stride + head * a.q_head_stride;
      load_vector<P>(a.dtype, a.q, at, query(i) + head * words, a.key_dim);
    }
  }

  // Copies the index keys of `count` positions from `first` on, a multiple of 16. Sixteen of them lie in one block, or
  // are brought together.
  void copy(int64_t first, int64_t count) const {
    switch (a.kv_dtype) {
      case CORE_F32: return copy_stored<float>(first, count);
      case CORE_BF16: return copy_stored<bf16>(first, count);
      case CORE_F16: return copy_stored<f16>(first, count);
      case CORE_F8_E4M3: return copy_stored<e4m3>(first, count);
      case CORE_F8_E5M2: return copy_stored<e5m2>(first, count);
      default: return copy_stored<i8>(first, count);
    }
  }

  // Scores of query `i` and the `seen` positions that were copied.
  void score(int64_t token, int64_t i, int64_t seen) const {
    int64_t count = round_up(seen, P::kKeys);
    P::enter(a.heads);
    for (int64_t k = 0; k < count; k += kPanelKeys) {
      int64_t here = count - k < kPanelKeys ? count - k : kPanelKeys;
      P::scores(query(i), keys() + k * layout.dims, products() + k, layout.stride, a.heads, layout.dims, kPanelKeys, 0,
                here);
    }
    const float* weights = a.weights + token * a.weights_stride;
    float scale = static_cast<float>(a.scale);
    for (int64_t k = 0; k < seen; k += kLanes) {  // a NaN passes through the maximum
      vf total = {}, unit = core::load(scales() + k) * scale;
      for (int64_t head = 0; head < a.heads; ++head) {
        total += vec_max(vf{}, core::load(products() + head * layout.stride + k) * unit) * weights[head];
      }
      store(scores() + k, total);
    }
  }

 private:
  template <typename S>
  void copy_stored(int64_t first, int64_t count) const {
    int64_t bytes = latent_row_bytes(a.key_dim, 0, a.kv_dtype);
    for (int64_t done = 0; done < count; done += 16) {
      int64_t key = first + done, here = count - done < 16 ? count - done : 16;
      copy_keys<S>(a.block_size % 16 == 0 ? cached(key, bytes) : gather(key, here, bytes), bytes, done, here);
    }
  }

  const char* cached(int64_t key, int64_t bytes) const {
    int64_t block = a.table[row * a.table_stride + key / a.block_size];
    return static_cast<const char*>(a.cache) + (block * a.block_size + key % a.block_size) * bytes;
  }

  const char* gather(int64_t first, int64_t count, int64_t bytes) const {
    char* to = scratch + layout.gathered;
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(to + i * bytes, cached(first + i, bytes), static_cast<size_t>(bytes));
    }
    return to;
  }

  template <typename S>
  void copy_keys(const char* from, int64_t bytes, int64_t at, int64_t count) const {
    T* to = panel_at(keys(), at, layout.dims, 0);
    if constexpr (kAsTheyLie<S, T>) {
      for (int64_t k = 0; k < 16; ++k) scales()[at + k] = 1.0f;
      auto rows = reinterpret_cast<const S*>(from);
      transpose_keys(rows, bytes / static_cast<int64_t>(sizeof(S)), to, layout.dims, a.key_dim, count);
    } else {
      for (int64_t k = 0; k < count; ++k, from += bytes) {
        scales()[at + k] = open_key<S>(from, stage() + k * layout.dims, a.key_dim, layout.dims);
      }
      transpose_keys(stage(), layout.dims, to, layout.dims, layout.dims, count);
    }
  }
};

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
