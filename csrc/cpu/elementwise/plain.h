// What encoders need: layer norm, activations without a gate. Included per instruction set.
#pragma once

#include "common/parallel.h"
#include "elementwise/activate.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// A team costs about as much as this many elements.
constexpr int64_t kTeamElements = 16384;

// Calls body(first, count) for the whole vectors of a row, then for what is left of one.
template <typename Body, typename Rest>
CORE_INLINE void for_vectors(int64_t size, const Body& body, const Rest& rest) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) body(i);
  if (i < size) rest(i, size - i);
}

template <typename T>
void add_row(const T* x, const T* y, T* out, int64_t size) {
  for_vectors(
      size, [&](int64_t i) { store(out + i, load(x + i) + load(y + i)); },
      [&](int64_t i, int64_t left) { store_part(out + i, load_part(x + i, left) + load_part(y + i, left), left); });
}

constexpr int64_t kHeldElements = 16384;  // of a row that is widened once

// A row that all passes but the first read from `held`, in float32 up to the next whole vector.
template <typename T>
struct NormedRow {
  const T* x;
  float* held;
  int64_t size;

  // Widens the row and returns its sum.
  float hold() const {
    vf a = {}, b = {};
    int64_t i = 0;
    for (; i + 2 * kLanes <= size; i += 2 * kLanes) {
      vf u = load(x + i), w = load(x + i + kLanes);
      store(held + i, u);
      store(held + i + kLanes, w);
      a += u;
      b += w;
    }
    for (; i < size; i += kLanes) {
      vf u = size - i >= kLanes ? load(x + i) : load_part(x + i, size - i);
      store(held + i, u);
      a += u;
    }
    return sum(a + b);
  }

  // The sum of squares of what differs from the mean, which lanes behind the row get as their value.
  float squares(float mean) const {
    for (int64_t i = size; i % kLanes != 0; ++i) held[i] = mean;
    vf a = {}, b = {};
    int64_t i = 0;
    for (; i + 2 * kLanes <= size; i += 2 * kLanes) {
      vf u = load(held + i) - mean, w = load(held + i + kLanes) - mean;
      a += u * u;
      b += w * w;
    }
    for (; i < size; i += kLanes) {
      vf u = load(held + i) - mean;
      a += u * u;
    }
    return sum(a + b);
  }
};

// The mean, then the mean of squares of what differs from it: no cancellation.
template <typename T>
void layer_norm_row(const T* x, const T* weight, const T* bias, T* out, int64_t size, float eps) {
  alignas(64) float held[kHeldElements];
  NormedRow<T> row{x, held, size};
  float count = static_cast<float>(size), mean = row.hold() / count;
  float scale = 1.0f / __builtin_sqrtf(row.squares(mean) / count + eps);
  for_vectors(
      size,
      [&](int64_t i) {
        vf normed = (load(held + i) - mean) * scale * load(weight + i);
        store(out + i, bias == nullptr ? normed : normed + load(bias + i));
      },
      [&](int64_t i, int64_t left) {
        vf normed = (load(held + i) - mean) * scale * load_part(weight + i, left);
        store_part(out + i, bias == nullptr ? normed : normed + load_part(bias + i, left), left);
      });
}

// The same for rows of any size.
template <typename T>
void layer_norm_long_row(const T* x, const T* weight, const T* bias, T* out, int64_t size, float eps) {
  double total = 0.0, squares = 0.0;
  for (int64_t i = 0; i < size; ++i) total += to_float(x[i]);
  double mean = total / static_cast<double>(size);
  for (int64_t i = 0; i < size; ++i) squares += (to_float(x[i]) - mean) * (to_float(x[i]) - mean);
  double scale = 1.0 / __builtin_sqrt(squares / static_cast<double>(size) + eps);
  for (int64_t i = 0; i < size; ++i) {
    double normed = (to_float(x[i]) - mean) * scale * to_float(weight[i]);
    out[i] = from_float<T>(static_cast<float>(bias == nullptr ? normed : normed + to_float(bias[i])));
  }
}

template <typename T>
void layer_norm(const core_layer_norm_args& a) {
  auto x = static_cast<const T*>(a.x), residual = static_cast<const T*>(a.residual);
  auto weight = static_cast<const T*>(a.weight), bias = static_cast<const T*>(a.bias);
  auto total = static_cast<T*>(a.total), out = static_cast<T*>(a.out);
  float eps = static_cast<float>(a.eps);
  parallel_for(a.rows, a.threads, ceil_div(kTeamElements, a.size > 0 ? a.size : 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* source = x + row * a.x_stride;
      if (residual != nullptr) {
        add_row(source, residual + row * a.residual_stride, total + row * a.size, a.size);
        source = total + row * a.size;
      }
      T* target = out + row * a.size;
      a.size <= kHeldElements ? layer_norm_row(source, weight, bias, target, a.size, eps)
                              : layer_norm_long_row(source, weight, bias, target, a.size, eps);
    }
  });
}

// `size` elements of one row.
template <typename T, int64_t Kind>
void activate_row(const T* x, T* out, int64_t size) {
  constexpr int some = 4;
  int64_t i = 0;
  for (; i + some * kLanes <= size; i += some * kLanes) {
    vf v[some];
    CORE_UNROLL
    for (int j = 0; j < some; ++j) v[j] = load(x + i + j * kLanes);
    activate<T, Kind>(v);
    CORE_UNROLL
    for (int j = 0; j < some; ++j) store(out + i + j * kLanes, v[j]);
  }
  for (; i < size; i += kLanes) {
    int64_t left = size - i < kLanes ? size - i : kLanes;
    vf v[1] = {left == kLanes ? load(x + i) : load_part(x + i, left)};
    activate<T, Kind>(v);
    left == kLanes ? store(out + i, v[0]) : store_part(out + i, v[0], left);
  }
}

template <typename T, int64_t Kind>
void activate_rows(const core_activate_args& a) {
  auto x = static_cast<const T*>(a.x);
  auto out = static_cast<T*>(a.out);
  // Parts of rows, so that the few wide rows of a short text occupy every thread too.
  constexpr int64_t part = 512;
  int64_t parts = ceil_div(a.size, part);
  parallel_for(a.rows * parts, a.threads, kTeamElements / 4 / part, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      int64_t row = unit / parts, from = unit % parts * part, left = a.size - from;
      const T* source = x + row * a.x_stride + from;
      activate_row<T, Kind>(source, out + row * a.out_stride + from, left < part ? left : part);
    }
  });
}

template <typename T>
void activate_of(const core_activate_args& a) {
  if (a.activation == CORE_SILU) return activate_rows<T, CORE_SILU>(a);
  if (a.activation == CORE_GELU_TANH) return activate_rows<T, CORE_GELU_TANH>(a);
  activate_rows<T, CORE_GELU>(a);
}

}  // namespace

void layer_norm(const core_layer_norm_args* a) {
  a->dtype == CORE_BF16 ? layer_norm<bf16>(*a) : layer_norm<float>(*a);
}

void plain_activation(const core_activate_args* a) {
  a->dtype == CORE_BF16 ? activate_of<bf16>(*a) : activate_of<float>(*a);
}

}  // namespace CORE_VARIANT
}  // namespace core
