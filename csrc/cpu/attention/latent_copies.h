// Copies of cached latents and rotated keys in the forms of `copies.h`, and vectors of odd sizes for the products.
#pragma once

#include "attention/latent_plan.h"
#include "attention/rows.h"
#include "attention/tile.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// Brings `dims` numbers into the form that the products read query vectors and weights in, zeros behind them up to a
// multiple of 16.
template <typename P, typename Q>
void load_padded(const Q* from, typename P::Query* out, int64_t dims) {
  int64_t whole = dims / kVector * kVector;
  if (whole > 0) P::load_query(from, out, whole);
  if (whole == dims) return;
  Q rest[kVector] = {};
  std::memcpy(rest, from + whole, static_cast<size_t>(dims - whole) * sizeof(Q));
  P::load_query(rest, out + P::words(whole), kVector);
}

// The same of element `at` of a tensor whose dtype is known at run time.
template <typename P>
void load_vector(int64_t dtype, const void* from, int64_t at, typename P::Query* out, int64_t dims) {
  if constexpr (!P::kBfloat16Queries) {
    if (dtype == CORE_F32) return load_padded<P>(static_cast<const float*>(from) + at, out, dims);
  }
  load_padded<P>(static_cast<const bf16*>(from) + at, out, dims);
}

// Where the latents of a pass go, in which forms; null: not in that one.
template <typename P>
struct LatentCopies {
  using T = typename P::T;
  T* latents;  // panels of keys
  T* rotated;  // panels of keys of `rotated_dims`, of which rotated keys are those from `rotated_from` on
  int64_t rotated_dims, rotated_from;
  T* values;
  typename P::Query* rows;  // as query vectors of `row_dims`: latents, and rotated keys behind them if there is room
  int64_t row_dims;
  T* stage;
};

// Whether copies are made of the cache's elements as they lie.
template <typename S, typename T>
constexpr bool kAsTheyLie =
    std::is_same<S, T>::value || (std::is_same<S, bf16>::value && std::is_same<T, float>::value);

// The place of key `at`, from dimension `from` on, in panels of `width` keys.
template <typename T>
T* panel_at(T* panels, int64_t at, int64_t dims, int64_t from, int64_t width = kPanelKeys) {
  return panels + at / width * width * dims + from * width + at % width * kPackOf<T>;
}

// Widens one part of a token's row, zeros behind it up to a multiple of 16. Returns what follows in the cache.
template <typename S, typename T>
const char* widen_part(const char* row, T* out, int64_t dims) {
  auto from = reinterpret_cast<const S*>(row);
  const char* behind = row + dims * static_cast<int64_t>(sizeof(S));
  float unit = Format<S>::kUnit;
  if constexpr (Format<S>::kScaled) {
    std::memcpy(&unit, behind, sizeof(unit));
    behind += sizeof(unit);
  }
  for (int64_t d = 0; d < round_up(dims, kVector); d += kLanes) {
    vf value = d + kLanes <= dims ? load(from + d) : d < dims ? load_part(from + d, dims - d) : vf{};
    store(out + d, value * unit);
  }
  return behind;
}

// Copies `count` tokens, at most 16, to places `at ..`, a multiple of 16: latents and rotated keys `stride` apart.
template <typename P, typename E>
void copy_parts(const LatentCopies<P>& to, const E* latents, const E* rotated, int64_t stride, int64_t latent_dim,
                int64_t rope_dim, int64_t at, int64_t count) {
  int64_t latent = round_up(latent_dim, kVector), rope = round_up(rope_dim, kVector);
  if (to.latents != nullptr) {
    transpose_keys(latents, stride, panel_at(to.latents, at, latent, 0), latent, latent_dim, count);
    transpose_keys(rotated, stride, panel_at(to.rotated, at, to.rotated_dims, to.rotated_from), rope, rope_dim, count);
  }
  if (to.values != nullptr) {
    copy_value_rows(latents, stride, to.values + at * latent, latent, latent_dim, count);
  }
  for (int64_t t = 0; to.rows != nullptr && t < count; ++t) {
    typename P::Query* row = to.rows + P::words((at + t) * to.row_dims);
    load_padded<P>(latents + t * stride, row, latent_dim);
    if (to.row_dims > latent) load_padded<P>(rotated + t * stride, row + P::words(latent), rope_dim);
  }
}

template <typename S, typename P>
void copy_tokens(const LatentCopies<P>& to, const char* row, int64_t row_bytes, int64_t latent_dim, int64_t rope_dim,
                 int64_t at, int64_t count) {
  using T = typename P::T;
  if constexpr (kAsTheyLie<S, T>) {
    auto latents = reinterpret_cast<const S*>(row);
    copy_parts(to, latents, latents + latent_dim, row_bytes / static_cast<int64_t>(sizeof(S)), latent_dim, rope_dim, at,
               count);
  } else {
    int64_t latent = round_up(latent_dim, kVector), width = latent + round_up(rope_dim, kVector);
    for (int64_t t = 0; t < count; ++t, row += row_bytes) {
      const char* rotated = widen_part<S>(row, to.stage + t * width, latent_dim);
      if (rope_dim > 0) widen_part<S>(rotated, to.stage + t * width + latent, rope_dim);
    }
    copy_parts(to, to.stage, to.stage + latent, width, latent, width - latent, at, count);
  }
}

// Copies `count` tokens. `where(done, here)`: the rows of `here` of them, at most 16, from number `done` on.
template <typename S, typename P, typename Where>
void copy_stored(const core_latent_attention_args& a, const LatentCopies<P>& to, int64_t count, const Where& where) {
  int64_t bytes = latent_row_bytes(a.latent_dim, a.rope_dim, a.kv_dtype);
  for (int64_t done = 0; done < count; done += 16) {
    int64_t here = count - done < 16 ? count - done : 16;
    copy_tokens<S>(to, where(done, here), bytes, a.latent_dim, a.rope_dim, done, here);
  }
}

// The same of a cache whose dtype is known at run time.
template <typename P, typename Where>
void copy_found(const core_latent_attention_args& a, const LatentCopies<P>& to, int64_t count, const Where& where) {
  switch (a.kv_dtype) {
    case CORE_F32: return copy_stored<float>(a, to, count, where);
    case CORE_BF16: return copy_stored<bf16>(a, to, count, where);
    case CORE_F16: return copy_stored<f16>(a, to, count, where);
    case CORE_F8_E4M3: return copy_stored<e4m3>(a, to, count, where);
    case CORE_F8_E5M2: return copy_stored<e5m2>(a, to, count, where);
    default: return copy_stored<i8>(a, to, count, where);
  }
}

// Where a position of a batch row lies in the cache, whose rows are `bytes`.
inline const char* cached_row(const core_latent_attention_args& a, int64_t row, int64_t position, int64_t bytes) {
  // Both fit into 32 bits, whose division takes half the time.
  auto at = static_cast<uint32_t>(position), size = static_cast<uint32_t>(a.block_size);
  int64_t block = a.table[row * a.table_stride + at / size];
  return static_cast<const char*>(a.cache) + (block * a.block_size + at % size) * bytes;
}

// Copies `count` positions of a batch row from `first` on, a multiple of 16: so sixteen of them lie in one block.
template <typename P>
void copy_pass(const core_latent_attention_args& a, const LatentCopies<P>& to, int64_t row, int64_t first,
               int64_t count) {
  int64_t bytes = latent_row_bytes(a.latent_dim, a.rope_dim, a.kv_dtype);
  copy_found(a, to, count, [&](int64_t done, int64_t) { return cached_row(a, row, first + done, bytes); });
}

// Scores of a tile's query vectors and the first `count` keys in panels of `dims`.
template <typename P>
void score_panels(const Tile<P>& t, const typename P::T* panels, int64_t dims, int64_t count) {
  for (int64_t k = 0; k < count; k += kPanelKeys) {
    int64_t here = count - k < kPanelKeys ? count - k : kPanelKeys;
    P::scores(t.q(), panels + k * dims, t.s() + k, t.stride(), t.rows(), dims, kPanelKeys, 0, here);
  }
}

// Makes weights of the scores of `count` keys, of which every row sees the first `seen`.
template <typename P>
void weigh_all(const Tile<P>& t, int64_t count, int64_t seen) {
  for (int64_t r = 0; r < t.rows(); ++r) softmax_row(t, r, 0, seen, count, 0);
  finish_pass(t);
}

// Makes weights of the scores of `count` keys from `first` on, of which there are `seen`; a key stands for `ratio`
// tokens.
template <typename P>
void weigh_pass(const Tile<P>& t, int64_t first, int64_t count, int64_t seen, int64_t ratio = 1) {
  for (int64_t r = 0; r < t.rows(); ++r) {
    int64_t high = (t.position(r) + 1) / ratio - first;
    softmax_row(t, r, 0, high < 0 ? 0 : high < seen ? high : seen, count, 0);
  }
  finish_pass(t);
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
