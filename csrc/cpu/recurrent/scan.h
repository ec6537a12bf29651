// Recurrences of single channels: diagonal state spaces, and decaying sums. Included per instruction set.
#pragma once

#include "recurrent/rows.h"
#include "recurrent/sums.h"

namespace core {
namespace CORE_VARIANT {
namespace {

constexpr int64_t kScanBlock = 32;  // channels of a unit
constexpr int64_t kScanTokens = 16;
constexpr int64_t kMostStateDim = CORE_MOST_STATE_DIM;

// The first `count` lanes; the others 0, whatever they are.
CORE_INLINE vf first_lanes(vf value, int64_t count) {
  alignas(64) static const uint32_t ones[2 * 16] = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u,
                                                    ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u};
  return as_float(as_bits(value) & load_bits(ones + 16 - (count < kLanes ? count : kLanes)));
}

// Some channels. Each has whole vectors: its own memory if those are full, and else copies, whose lanes behind
// `state_dim` are 0.
struct ScanBlock {
  const core_selective_scan_args& a;
  int64_t begin, channels, size, padded;
  bool whole;
  alignas(64) float copy[kScanBlock * kMostStateDim], rates[kScanBlock * kMostStateDim];
  alignas(64) float in[kMostStateDim], out[kMostStateDim], given[kScanBlock], scale[kScanBlock];

  ScanBlock(const core_selective_scan_args& args, int64_t block)
      : a(args), begin(block * kScanBlock), channels(args.channels - begin), size(args.state_dim),
        padded(round_up(args.state_dim, kLanes)), whole(padded == size) {
    if (channels > kScanBlock) channels = kScanBlock;
    for (int64_t i = 0; !whole && i < channels; ++i) widen(a.a + (begin + i) * size, rates + i * padded, size);
  }

  template <typename T>
  void run(const Piece& piece) {
    float* state = a.state + a.state_slots[piece.row] * a.slot_stride + begin * size;
    float* h = whole ? state : copy;
    const float* rate = whole ? a.a + begin * size : rates;
    if (piece.fresh) std::memset(h, 0, static_cast<size_t>(channels * padded) * sizeof(float));
    for (int64_t i = 0; !whole && !piece.fresh && i < channels; ++i) widen(state + i * size, h + i * padded, size);
    for (int64_t token = piece.from; token < piece.to; ++token) {
      read<T>(token);
      T* to = static_cast<T*>(a.out) + token * a.channels + begin;
      for (int64_t i = 0; i < channels; i += kLanes) {
        int64_t left = channels - i;
        store_some(to + i, several(h + i * padded, rate + i * padded, i, left < kLanes ? left : kLanes), left);
      }
    }
    for (int64_t i = 0; !whole && i < channels; ++i) {
      std::memcpy(state + i * size, h + i * padded, static_cast<size_t>(size) * sizeof(float));
    }
  }

 private:
  template <typename T>
  void read(int64_t token) {
    widen(static_cast<const T*>(a.b) + token * a.b_stride, in, size);
    widen(static_cast<const T*>(a.c) + token * a.c_stride, out, size);
    const T* x = static_cast<const T*>(a.x) + token * a.x_stride + begin;
    const float* step = a.step + token * a.step_stride + begin;
    constexpr float log2_e = 1.44269504f;
    ask(x + kScanBlock, kScanBlock);  // of the next block
    ask(step + kScanBlock, kScanBlock);
    for (int64_t i = 0; i < channels; i += kLanes) {
      vf delta = load_some(step + i, channels - i);
      store(given + i, delta * load_some(x + i, channels - i));
      store(scale + i, delta * log2_e);
    }
  }

  // `count` channels, the first of which is number `at` of the block: a lane for each.
  CORE_INLINE vf several(float* h, const float* rate, int64_t at, int64_t count) {
    vf totals[kLanes] = {};
    for (int64_t j = 0; j < count; ++j) {
      vf total = {}, x = splat(given[at + j]), delta = splat(scale[at + j]);
      for (int64_t i = j * padded; i < (j + 1) * padded; i += kLanes) {
        int64_t number = i - j * padded;
        vf now = multiply_add(exp2_negative(load(rate + i) * delta), load(h + i), x * load(in + number));
        if (size - number < kLanes) now = first_lanes(now, size - number);  // 0 times what is not finite
        store(h + i, now);
        total = multiply_add(now, load(out + number), total);
      }
      totals[j] = total;
    }
    return sums(totals);
  }
};

template <typename T>
void selective_scan(const core_selective_scan_args& a) {
  constexpr int64_t operations = 8;  // of a vector, with its exponential
  int64_t work = operations * kScanBlock * ceil_div(a.state_dim, kLanes);
  for_parts(a, ceil_div(a.channels, kScanBlock), work, kScanTokens, [&](int64_t block, const Piece& piece) {
    ScanBlock(a, block).run<T>(piece);
  });
}

constexpr int64_t kSumBlock = 128;  // channels of a unit

template <typename T>
void gated_recurrence(const core_gated_recurrence_args& a) {
  constexpr int64_t work = 4 * kSumBlock / kLanes;
  for_parts(a, ceil_div(a.channels, kSumBlock), work, kScanTokens, [&](int64_t block, const Piece& piece) {
    alignas(64) float h[kSumBlock] = {};
    int64_t begin = block * kSumBlock, size = a.channels - begin < kSumBlock ? a.channels - begin : kSumBlock;
    float* state = a.state + a.state_slots[piece.row] * a.slot_stride + begin;
    if (!piece.fresh) widen(state, h, size);
    for (int64_t token = piece.from; token < piece.to; ++token) {
      const T* x = static_cast<const T*>(a.x) + token * a.x_stride + begin;
      const float* decay = a.decay + token * a.decay_stride + begin;
      T* out = static_cast<T*>(a.out) + token * a.channels + begin;
      ask(x + kSumBlock, kSumBlock);  // of the next block
      ask(decay + kSumBlock, kSumBlock);
      for (int64_t i = 0; i < size; i += kLanes) {
        int64_t left = size - i;
        vf now = multiply_add(exp(load_some(decay + i, left)), load(h + i), load_some(x + i, left));
        store(h + i, now);
        store_some(out + i, now, left);
      }
    }
    std::memcpy(state, h, static_cast<size_t>(size) * sizeof(float));
  });
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
