// Included once per instruction set, with CORE_VARIANT set.
#include "common/vec.h"
#include "gemm/kernel.h"

namespace core {
namespace gemm {
namespace CORE_VARIANT {
namespace {

// Where the largest of `values` comes first; the caller knows that one is larger than `best`.
CORE_INLINE void keep_first(Best* best, const float* values, int64_t count, int64_t channel) {
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] > best->value) *best = {values[i], channel + i};
  }
}

// `scale`: of the first panel's channels; those of the next are `next_scale` bytes away.
template <typename T>
void finish_row(const float* out, int64_t count, const char* scale, int64_t next_scale, const float* bias, T* y,
                Best* best, int64_t channel) {
  alignas(64) float values[kLanes];
  for (int64_t i = 0; i < count; i += kLanes) {
    int64_t left = count - i < kLanes ? count - i : kLanes;
    vf value = load(out + i);
    if (scale != nullptr) {  // scales are padded
      value = value * load(reinterpret_cast<const float*>(scale + i / kPanel * next_scale) + i % kPanel);
    }
    if (bias != nullptr) value = value + (left == kLanes ? load(bias + i) : load_part(bias + i, left));
    if (y != nullptr) {
      if (left == kLanes) {
        store(y + i, value);
      } else {
        store_part(y + i, value, left);
      }
    }
    if (best != nullptr) {
      T rounded[kLanes];
      store(rounded, value);
      value = load(rounded);
      store(values, value);
      if (left < kLanes || max_of(value) > best->value) keep_first(best, values, left, channel + i);
    }
  }
}

// A tile whose channels are all there, with nothing but a conversion to do: most tiles of most products.
template <typename T>
void store_rows(const float* out, int64_t stride, int64_t rows, T* y, int64_t y_stride, int64_t count) {
  for (int64_t row = 0; row < rows; ++row, out += stride, y += y_stride) {
    for (int64_t i = 0; i < count; i += kLanes) store(y + i, load(out + i));
  }
}

template <typename T>
void finish_tile(const Call& call, const Tile& tile, const float* out, int64_t stride, Best* best) {
  const core_gemm_args& args = *call.args;
  int64_t channel = tile.panel * kPanel, count = tile.panels * kPanel;
  if (count > args.n - channel) count = args.n - channel;
  const char* scale = nullptr;
  if (scaled(format_of(args.format))) scale = panel_of(call, tile.panel) + channel_scales_at(call);
  const float* bias = args.bias == nullptr ? nullptr : args.bias + channel;
  if (scale == nullptr && bias == nullptr && best == nullptr && count == tile.panels * kPanel) {
    T* y = static_cast<T*>(args.y) + tile.row * args.y_stride + channel;
    return store_rows(out, stride, tile.rows, y, args.y_stride, count);
  }
  for (int64_t i = 0; i < tile.rows; ++i) {
    int64_t row = tile.row + i;
    T* y = args.y == nullptr ? nullptr : static_cast<T*>(args.y) + row * args.y_stride + channel;
    Best* kept = best == nullptr ? nullptr : best + row;
    finish_row<T>(out + i * stride, count, scale, call.panel_bytes, bias, y, kept, channel);
  }
}

}  // namespace

void finish(const Call& call, const Tile& tile, const float* out, int64_t stride, Best* best) {
  if (call.args->y_dtype == CORE_F32) {
    finish_tile<float>(call, tile, out, stride, best);
  } else {
    finish_tile<bf16>(call, tile, out, stride, best);
  }
}

}  // namespace CORE_VARIANT
}  // namespace gemm
}  // namespace core
