// Recurrences of single channels: diagonal state spaces, and decaying sums. Included per instruction set.
#pragma once

#include "recurrent/rows.h"
#include "recurrent/sums.h"

namespace core {
namespace CORE_VARIANT {
namespace {

constexpr int64_t kScanBlock = 32;  // channels of a unit
constexpr int64_t kScanTokens = 16, kUsual = 16;  // of a piece; numbers of a channel's state in nearly all models
constexpr int64_t kMostStateDim = CORE_MOST_STATE_DIM;

// The first `count` lanes; the others 0, whatever they are.
CORE_INLINE vf first_lanes(vf value, int64_t count) {
  alignas(64) static const uint32_t ones[2 * 16] = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u,
                                                    ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u};
  return as_float(as_bits(value) & load_bits(ones + 16 - (count < kLanes ? count : kLanes)));
}

// x[i] becomes 2^(x[i] * by[i]), which is at most 1, to 1e-7 relative; as `exp2`, step by step for all.
template <int N>
CORE_INLINE void exp2_scaled(vf (&x)[N], const float* by) {
#if defined(__AVX512F__)
#define CORE_EACH _Pragma("GCC unroll 8") for (int i = 0; i < N; ++i)
  constexpr float round = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  vf n[N], p[N];
  CORE_EACH n[i] = multiply_add(x[i], splat(by[i]), splat(round));
  CORE_EACH n[i] = n[i] - round;
  CORE_EACH x[i] = multiply_add(x[i], splat(by[i]), -n[i]);
  CORE_EACH p[i] = multiply_add(x[i], splat(0.0013218672247603536f), splat(0.009671698324382305f));
  CORE_EACH p[i] = multiply_add(p[i], x[i], splat(0.05550893023610115f));
  CORE_EACH p[i] = multiply_add(p[i], x[i], splat(0.24022237956523895f));
  CORE_EACH p[i] = multiply_add(p[i], x[i], splat(0.6931468844413757f));
  CORE_EACH p[i] = multiply_add(p[i], x[i], splat(1.0f));
  CORE_EACH {
    __mmask16 normal = _mm512_cmp_ps_mask((__m512)n[i], (__m512)splat(-126.0f), _CMP_NLT_UQ);
    x[i] = (vf)_mm512_maskz_scalef_ps(normal, (__m512)p[i], (__m512)n[i]);
  }
#undef CORE_EACH
#else
  CORE_UNROLL
  for (int i = 0; i < N; ++i) x[i] = exp2(x[i] * by[i]);
#endif
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
    if (size == kUsual && count == kLanes) return usual(h, rate, at);
    vf totals[kLanes] = {};
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t i = 0; i < padded; i += kLanes) {
        vf now = advance(h + j * padded + i, rate + j * padded + i, at + j, load(in + i));
        if (size - i < kLanes) {  // 0 times what is not finite
          now = first_lanes(now, size - i);
          store(h + j * padded + i, now);
        }
        totals[j] = multiply_add(now, load(out + i), totals[j]);
      }
    }
    return sums(totals);
  }

  // The same of as many channels as there are lanes, whose states have the usual size.
  CORE_INLINE vf usual(float* h, const float* rate, int64_t at) {
    return sums_in_turn([&](int group, vf (&totals)[kSummed]) __attribute__((always_inline)) {
      const int64_t first = group * kSummed;
      CORE_UNROLL
      for (int i = 0; i < kUsual / kLanes; ++i) {
        vf now[kSummed], c = load(out + i * kLanes);
        advance(h + first * kUsual + i * kLanes, rate + first * kUsual + i * kLanes, at + first, load(in + i * kLanes), now);
        CORE_UNROLL
        for (int j = 0; j < kSummed; ++j) totals[j] = i == 0 ? now[j] * c : multiply_add(now[j], c, totals[j]);
      }
    });
  }

  // A vector of the state of each of several channels from `at` on, and a token.
  CORE_INLINE void advance(float* h, const float* rate, int64_t at, vf b, vf (&now)[kSummed]) {
    vf decays[kSummed];
    CORE_UNROLL
    for (int j = 0; j < kSummed; ++j) decays[j] = load(rate + j * kUsual);
    exp2_scaled(decays, scale + at);
    CORE_UNROLL
    for (int j = 0; j < kSummed; ++j) now[j] = multiply_add(decays[j], load(h + j * kUsual), b * splat(given[at + j]));
    CORE_UNROLL
    for (int j = 0; j < kSummed; ++j) store(h + j * kUsual, now[j]);
  }

  // A vector of the state of channel `at`, and a token.
  CORE_INLINE vf advance(float* h, const float* rate, int64_t at, vf b) {
    vf now = multiply_add(exp2(load(rate) * splat(scale[at])), load(h), b * splat(given[at]));
    store(h, now);
    return now;
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
