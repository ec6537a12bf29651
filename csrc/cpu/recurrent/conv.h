// The convolution of each channel with the tokens before. Included per instruction set.
#pragma once

#include "recurrent/rows.h"

namespace core {
namespace CORE_VARIANT {
namespace {

constexpr int64_t kConvBlock = 64;  // channels of a unit
constexpr int64_t kMostWidth = CORE_MOST_CONV_WIDTH;

// (channels, width) as one line of channels for each of `width`: what vectors over channels read. `Width` 0: any.
template <int64_t Width, typename T>
void spread_of(const T* __restrict from, float* __restrict to, int64_t channels, int64_t width) {
  const int64_t w = Width > 0 ? Width : width;
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t j = 0; j < w; ++j) to[j * kConvBlock + c] = to_float(from[c * w + j]);
  }
}

template <typename T>
void spread(const T* from, float* to, int64_t channels, int64_t width) {
  if (width == 2) return spread_of<2>(from, to, channels, width);
  if (width == 3) return spread_of<3>(from, to, channels, width);
  if (width == 4) return spread_of<4>(from, to, channels, width);
  spread_of<0>(from, to, channels, width);
}

inline void spread(const void* from, int64_t dtype, int64_t at, float* to, int64_t channels, int64_t width) {
  if (dtype == CORE_BF16) return spread(static_cast<const bf16*>(from) + at, to, channels, width);
  spread(static_cast<const float*>(from) + at, to, channels, width);
}

// The lines of the last `width + 1` tokens, in turn: that of the oldest one is `first`.
struct Lines {
  alignas(64) float data[kMostWidth * kConvBlock];

  float* of(int64_t line) { return data + line * kConvBlock; }

  // The state again; what was a bfloat16 is one without rounding.
  template <typename S>
  void keep(S* state, int64_t channels, int64_t width, int64_t first) {
    if (width == 2) return keep_of<2>(state, channels, width, first);
    if (width == 3) return keep_of<3>(state, channels, width, first);
    keep_of<0>(state, channels, width, first);
  }

 private:
  template <int64_t Width, typename S>
  void keep_of(S* __restrict state, int64_t channels, int64_t width, int64_t first) {
    const int64_t w = Width > 0 ? Width : width;
    int64_t lines[kMostWidth];
    for (int64_t j = 0; j < w; ++j) lines[j] = (first + j) % (w + 1) * kConvBlock;
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t j = 0; j < w; ++j) state[c * w + j] = exactly<S>(data[lines[j] + c]);
    }
  }

  template <typename S>
  static S exactly(float value) {
    if constexpr (sizeof(S) == sizeof(float)) return value;
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    uint16_t upper = static_cast<uint16_t>(bits >> 16);
    S out;
    std::memcpy(&out, &upper, sizeof upper);
    return out;
  }
};

struct ConvBlock {
  alignas(64) float weight[kMostWidth * kConvBlock], bias[kConvBlock];
  Lines lines;
  int64_t begin = -1, channels = 0;  // whose weights these are

  void take(const core_causal_conv_args& a, int64_t block) {
    if (block * kConvBlock == begin) return;
    begin = block * kConvBlock;
    channels = a.channels - begin < kConvBlock ? a.channels - begin : kConvBlock;
    spread(a.weight, a.weight_dtype, begin * a.width, weight, channels, a.width);
    std::memset(bias, 0, sizeof bias);
    if (a.bias != nullptr) spread(a.bias, a.weight_dtype, begin, bias, channels, 1);
  }

  template <typename T>
  void run(const core_causal_conv_args& a, int64_t row) {
    int64_t past = a.width - 1, at = a.state_slots[row] * a.slot_stride + begin * past;
    if (a.fresh[row] != 0) {
      std::memset(lines.data, 0, static_cast<size_t>(past * kConvBlock) * sizeof(float));
    } else {
      spread(a.state, a.state_dtype, at, lines.data, channels, past);
    }
    int64_t first = 0, from = a.query_starts[row], to = a.query_starts[row + 1];
    for (int64_t token = from; token < to; ++token) {
      widen(static_cast<const T*>(a.x) + token * a.x_stride + begin, lines.of((first + past) % a.width), channels);
      T* out = static_cast<T*>(a.out) + token * a.channels + begin;
      a.activation != 0 ? sum<true>(out, first, a.width) : sum<false>(out, first, a.width);
      first = first + 1 == a.width ? 0 : first + 1;
    }
    if (a.state_dtype == CORE_BF16) return lines.keep(static_cast<bf16*>(a.state) + at, channels, past, first);
    lines.keep(static_cast<float*>(a.state) + at, channels, past, first);
  }

 private:
  template <bool Activation, typename T>
  void sum(T* out, int64_t first, int64_t width) {
    for (int64_t i = 0; i < channels; i += kLanes) {
      vf total = load(bias + i);
      int64_t line = first;
      for (int64_t j = 0; j < width; ++j) {
        total = multiply_add(load(weight + j * kConvBlock + i), load(lines.of(line) + i), total);
        line = line + 1 == width ? 0 : line + 1;
      }
      store_some(out + i, Activation ? total * sigmoid(total) : total, channels - i);
    }
  }
};

template <typename T>
void causal_conv(const core_causal_conv_args& a) {
  constexpr int64_t team_work = 16384;  // multiplications that a team costs
  int64_t each = kConvBlock * a.width * (a.rows > 0 ? ceil_div(a.tokens, a.rows) : 1);
  int64_t blocks = ceil_div(a.channels, kConvBlock);
  parallel_for(blocks * a.rows, a.threads, ceil_div(team_work, each > 0 ? each : 1), [&](int64_t begin, int64_t end) {
    ConvBlock block;
    for (int64_t unit = begin; unit < end; ++unit) {
      int64_t row = unit % a.rows;
      if (a.query_starts[row] == a.query_starts[row + 1]) continue;
      block.take(a, unit / a.rows);
      block.run<T>(a, row);
    }
  });
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
