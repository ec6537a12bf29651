// The element-wise kernels for the instruction set of the including file, in namespace core::CORE_VARIANT.
#include "common/parallel.h"
#include "common/vec.h"
#include "elementwise/activate.h"
#include "elementwise/elementwise.h"
#include "elementwise/plain.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// Below this many elements a team costs more than it saves (measured: a region costs about as much as 16k elements).
constexpr int64_t kGrain = 16384;

inline int64_t rows_per_thread(int64_t row_elements) { return ceil_div(kGrain, row_elements > 0 ? row_elements : 1); }

// ---- RMS norm ------------------------------------------------------------------------------------------------------

template <typename T>
float sum_of_squares(const T* x, int64_t size) {
  vf a = {}, b = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= size; i += 2 * kLanes) {
    vf u = load(x + i), w = load(x + i + kLanes);
    a += u * u;
    b += w * w;
  }
  for (; i + kLanes <= size; i += kLanes) {
    vf u = load(x + i);
    a += u * u;
  }
  if (i < size) {
    vf u = load_part(x + i, size - i);
    b += u * u;
  }
  return sum(a + b);
}

template <typename T>
void add_rows(const T* x, const T* residual, T* total, int64_t size) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) store(total + i, load(x + i) + load(residual + i));
  if (i < size) store_part(total + i, load_part(x + i, size - i) + load_part(residual + i, size - i), size - i);
}

template <typename T>
void norm_row(const T* x, const T* weight, T* out, int64_t size, float eps) {
  float mean = sum_of_squares(x, size) / static_cast<float>(size);
  float scale = 1.0f / __builtin_sqrtf(mean + eps);
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) store(out + i, load(x + i) * scale * load(weight + i));
  if (i < size) {
    store_part(out + i, load_part(x + i, size - i) * scale * load_part(weight + i, size - i), size - i);
  }
}

template <typename T>
void rms_norm(const core_rms_norm_args& a) {
  auto x = static_cast<const T*>(a.x);
  auto residual = static_cast<const T*>(a.residual);
  auto weight = static_cast<const T*>(a.weight);
  auto total = static_cast<T*>(a.total);
  auto out = static_cast<T*>(a.out);
  float eps = static_cast<float>(a.eps);
  parallel_for(a.outer * a.inner, a.threads, rows_per_thread(a.size), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* source = x + row / a.inner * a.x_outer + row % a.inner * a.x_inner;
      int64_t at = row * a.size;
      if (residual != nullptr) {
        add_rows(source, residual + at, total + at, a.size);
        source = total + at;
      }
      norm_row(source, weight, out + at, a.size, eps);
    }
  });
}

// ---- gated activations ---------------------------------------------------------------------------------------------

template <typename T, int64_t Kind>
void gated(const core_gated_args& a) {
  auto x = static_cast<const T*>(a.x);
  auto out = static_cast<T*>(a.out);
  // Parts of rows, so that the few wide rows of a decode step occupy every thread too.
  constexpr int64_t part = 512;
  int64_t parts = ceil_div(a.size, part);
  parallel_for(a.rows * parts, a.threads, kGrain / 4 / part, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      int64_t row = unit / parts, from = unit % parts * part;
      int64_t to = from + part < a.size ? from + part : a.size;
      const T* gate = x + row * a.x_stride;
      const T* up = gate + a.size;
      T* target = out + row * a.out_stride;
      int64_t i = from;
      constexpr int64_t some = 4;
      for (; i + some * kLanes <= to; i += some * kLanes) {
        vf x[some];
        CORE_UNROLL
        for (int64_t j = 0; j < some; ++j) x[j] = load(gate + i + j * kLanes);
        activate<T, Kind>(x);
        CORE_UNROLL
        for (int64_t j = 0; j < some; ++j) store(target + i + j * kLanes, x[j] * load(up + i + j * kLanes));
      }
      for (; i + kLanes <= to; i += kLanes) store(target + i, activate<T, Kind>(load(gate + i)) * load(up + i));
      if (i < to) {
        store_part(target + i, activate<T, Kind>(load_part(gate + i, to - i)) * load_part(up + i, to - i), to - i);
      }
    }
  });
}

template <typename T>
void gated_of(const core_gated_args& a) {
  if (a.activation == CORE_SILU) return gated<T, CORE_SILU>(a);
  if (a.activation == CORE_GELU_TANH) return gated<T, CORE_GELU_TANH>(a);
  gated<T, CORE_GELU>(a);
}

// ---- rotary embedding and storage in the cache ---------------------------------------------------------------------

// Rotates one head; `out` may be `x`.
template <typename T, typename U>
void rotate(const T* x, const U* cos, const U* sin, T* out, int64_t rotary, int64_t head_dim) {
  int64_t half = rotary / 2, i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    vf a = load(x + i), b = load(x + half + i), c = load(cos + i), s = load(sin + i);
    store(out + i, a * c - b * s);
    store(out + half + i, b * c + a * s);
  }
  for (; i < half; ++i) {
    float a = to_float(x[i]), b = to_float(x[half + i]), c = to_float(cos[i]), s = to_float(sin[i]);
    out[i] = from_float<T>(a * c - b * s);
    out[half + i] = from_float<T>(b * c + a * s);
  }
  if (out != x) std::memcpy(out + rotary, x + rotary, static_cast<size_t>(head_dim - rotary) * sizeof(T));
}

constexpr int64_t kMaxHeadDim = 1024;

// Cosines and sines of one token for neighbours as pairs: each number twice, the first of two sines negated.
struct PairTables {
  float cos[kMaxHeadDim], sin[kMaxHeadDim];

  template <typename U>
  void fill(const U* from_cos, const U* from_sin, int64_t rotary) {
    for (int64_t i = 0; i < rotary; i += 2) {
      cos[i] = cos[i + 1] = to_float(from_cos[i / 2]);
      sin[i + 1] = to_float(from_sin[i / 2]);
      sin[i] = -sin[i + 1];
    }
  }
};

typedef uint64_t vpairs __attribute__((vector_size(kVecBytes)));

// The elements 2i and 2i + 1 in each other's place.
CORE_INLINE vf swap_neighbours(vf x) {
  vpairs pairs = reinterpret_cast<vpairs>(x);
  return reinterpret_cast<vf>((pairs << 32) | (pairs >> 32));
}

// Rotates one head whose pairs are neighbours; `out` may be `x`.
template <typename T>
void rotate_neighbours(const T* x, const PairTables& tables, T* out, int64_t rotary, int64_t head_dim) {
  int64_t i = 0;
  for (; i + kLanes <= rotary; i += kLanes) {
    vf a = load(x + i);
    store(out + i, a * load(tables.cos + i) + swap_neighbours(a) * load(tables.sin + i));
  }
  if (i < rotary) {
    vf a = load_part(x + i, rotary - i);
    vf c = load_part(tables.cos + i, rotary - i), s = load_part(tables.sin + i, rotary - i);
    store_part(out + i, a * c + swap_neighbours(a) * s, rotary - i);
  }
  if (out != x) std::memcpy(out + rotary, x + rotary, static_cast<size_t>(head_dim - rotary) * sizeof(T));
}

// Keys lie dimension by dimension, values token by token; bf16 in pairs: see attention/attention.h.
inline void store_key(float* block, const float* k, int64_t offset, int64_t block_size, int64_t head_dim) {
  for (int64_t d = 0; d < head_dim; ++d) block[d * block_size + offset] = k[d];
}

inline void store_key(bf16* block, const bf16* k, int64_t offset, int64_t block_size, int64_t head_dim) {
  for (int64_t d = 0; d < head_dim; d += 2) std::memcpy(block + (d * block_size + offset * 2), k + d, 4);
}

inline void store_value(float* block, const float* v, int64_t offset, int64_t head_dim) {
  std::memcpy(block + offset * head_dim, v, static_cast<size_t>(head_dim) * sizeof(float));
}

inline void store_value(bf16* block, const bf16* v, int64_t offset, int64_t head_dim) {
  bf16* pairs = block + (offset / 2 * head_dim * 2 + offset % 2);
  for (int64_t d = 0; d < head_dim; ++d) pairs[d * 2] = v[d];
}

template <typename T, typename U>
void rope_token(const core_rope_kv_args& a, int64_t token) {
  const U *cos = nullptr, *sin = nullptr;
  if (a.cos != nullptr) {
    cos = static_cast<const U*>(a.cos) + a.positions[token] * a.table_stride;
    sin = static_cast<const U*>(a.sin) + a.positions[token] * a.table_stride;
  }
  PairTables tables;
  bool neighbours = cos != nullptr && a.interleaved != 0;
  if (neighbours) tables.fill(cos, sin, a.rotary);
  auto turn = [&](const T* x, T* out) {
    if (neighbours) return rotate_neighbours(x, tables, out, a.rotary, a.head_dim);
    rotate(x, cos, sin, out, cos != nullptr ? a.rotary : 0, a.head_dim);
  };
  for (int64_t head = 0; head < (a.q_out != nullptr ? a.heads : 0); ++head) {
    auto q = static_cast<const T*>(a.q) + token * a.q_stride + head * a.head_dim;
    turn(q, static_cast<T*>(a.q_out) + token * a.q_out_stride + head * a.head_dim);
  }
  T *keys = nullptr, *values = nullptr;
  int64_t offset = 0, per_head = a.block_size * a.head_dim;
  if (a.slots != nullptr) {
    offset = a.slots[token] % a.block_size;
    keys = static_cast<T*>(a.cache) + a.slots[token] / a.block_size * a.block_stride;
    values = keys + a.kv_heads * per_head;
  }
  for (int64_t head = 0; head < a.kv_heads; ++head) {
    T scratch[kMaxHeadDim];
    auto k = static_cast<const T*>(a.k) + token * a.k_stride + head * a.head_dim;
    T* rotated = a.k_out == nullptr ? scratch : static_cast<T*>(a.k_out) + token * a.k_out_stride + head * a.head_dim;
    if (cos != nullptr || a.k_out != nullptr) {
      turn(k, rotated);
      k = rotated;
    }
    if (keys == nullptr) continue;
    store_key(keys + head * per_head, k, offset, a.block_size, a.head_dim);
    auto v = static_cast<const T*>(a.v) + token * a.v_stride + head * a.head_dim;
    store_value(values + head * per_head, v, offset, a.head_dim);
  }
}

template <typename T, typename U>
void rope_kv(const core_rope_kv_args& a) {
  int64_t elements = (a.heads + 2 * a.kv_heads) * a.head_dim;
  parallel_for(a.tokens, a.threads, rows_per_thread(elements), [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) rope_token<T, U>(a, token);
  });
}

}  // namespace

void rms_norm(const core_rms_norm_args* a) { a->dtype == CORE_BF16 ? rms_norm<bf16>(*a) : rms_norm<float>(*a); }

void gated(const core_gated_args* a) { a->dtype == CORE_BF16 ? gated_of<bf16>(*a) : gated_of<float>(*a); }

void rope_kv(const core_rope_kv_args* a) {
  if (a->dtype == CORE_F32) return rope_kv<float, float>(*a);
  a->table_dtype == CORE_BF16 ? rope_kv<bf16, bf16>(*a) : rope_kv<bf16, float>(*a);
}

}  // namespace CORE_VARIANT
}  // namespace core
