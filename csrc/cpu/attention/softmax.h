// The softmax of a tile's scores, pass by pass.
#pragma once

#include <cmath>

#include "attention/tile.h"

namespace core {
namespace CORE_VARIANT {
namespace {

constexpr float kLog2E = 1.44269504f;

// Applies scale and soft cap to `count` scores. Without a cap the scale waits for the exponential.
inline void bend(float* s, int64_t count, float scale, float cap) {
  for (int64_t k = 0; k < count; k += kLanes) {
    store(s + k, (2.0f * sigmoid(load(s + k) * (2.0f * scale / cap)) - 1.0f) * cap);
  }
}

// Minus the square root of a distance of the past, which is negative; 0 of one of the future, which nobody sees.
CORE_INLINE vf rooted(vf away) {
  vf back = vec_max(vf{}, -away);
  for (int lane = 0; lane < kLanes; ++lane) back[lane] = -__builtin_sqrtf(back[lane]);
  return back;
}

// Applies `scale` to `count` scores and adds `slope` times the distance of each key, which is `distance` for the first,
// or its root.
inline void tilt(float* s, int64_t count, float scale, float slope, int64_t distance, bool root) {
  vf lane = {};
  for (int i = 0; i < kLanes; ++i) lane[i] = static_cast<float>(i);
  for (int64_t k = 0; k < count; k += kLanes) {
    vf away = lane + static_cast<float>(distance + k);
    store(s + k, load(s + k) * scale + (root ? rooted(away) : away) * slope);
  }
}

// `value` where lanes `lane0 ..` are within [low, high), `other` elsewhere.
CORE_INLINE vf inside(vf value, float other, int64_t lane0, int64_t low, int64_t high) {
  vi lane = {};
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  vi index = lane + static_cast<int32_t>(lane0);
  vi seen = (index >= static_cast<int32_t>(low)) & (index < static_cast<int32_t>(high));
  return seen ? value : splat(other);
}

// Makes of `from .. to - 1` of the products of row `r` its scores, in powers of 2 but for the factor that it returns.
// `distance`: from the row's query to the first of the scores' keys.
template <typename P>
CORE_INLINE float finish_scores(const Tile<P>& t, int64_t r, int64_t from, int64_t to, int64_t low, int64_t high,
                                int64_t distance) {
  float* s = t.s() + r * t.stride();
  float scale = static_cast<float>(t.a.scale) * Format<typename P::S>::kUnit, cap = static_cast<float>(t.a.softcap);
  if constexpr (P::kRounded) scale *= t.query_units()[r];
  if constexpr (Format<typename P::S>::kScaled) {
    const float* scales = t.key_scales(r);
    for (int64_t k = from; k < to; k += kLanes) store(s + k, load(s + k) * load(scales + k));
  }
  if (cap != 0.0f) bend(s + from, to - from, scale, cap);
  float factor = cap == 0.0f ? scale : 1.0f;
  if (t.a.slopes != nullptr) {
    tilt(s + from, to - from, factor, t.a.slopes[t.query_head(r)], distance + from, t.a.rooted != 0.0);
    factor = 1.0f;
  }
  constexpr float never = -__builtin_inff();
  if (from < low) store(s + from, inside(load(s + from), never, from, low, high));
  if (to > high) store(s + to - kLanes, inside(load(s + to - kLanes), never, to - kLanes, low, high));
  return factor * kLog2E;
}

// The scales of keys `k ..`, 0 where none of `low .. high - 1` is: what lies there may be anything.
CORE_INLINE vf seen_scales(const float* scales, int64_t k, int64_t low, int64_t high) {
  vf all = load(scales + k);
  return k < low || k + kLanes > high ? inside(all, 0.0f, k, low, high) : all;
}

// The largest of them, a NaN where one is.
CORE_INLINE float largest_scale(const float* scales, int64_t from, int64_t to, int64_t low, int64_t high) {
  vu best = {};
  for (int64_t k = from; k < to; k += kLanes) {
    vu bits = as_bits(seen_scales(scales, k, low, high)) & 0x7fffffffu;  // as integers, NaNs are the largest
    best = bits > best ? bits : best;
  }
  uint32_t most = 0;
  for (int lane = 0; lane < kLanes; ++lane) most = best[lane] > most ? best[lane] : most;
  float scale;
  std::memcpy(&scale, &most, sizeof(scale));
  return scale;
}

// What the exponents of row `r`'s weights are relative to, in a pass whose largest one is `peak`: scales times weights
// fill 15 bits. A pass of small weights keeps that precision, as long as what was added before can be multiplied up.
template <typename P>
CORE_INLINE float choose_reference(const Tile<P>& t, int64_t r, float peak, int64_t from, int64_t to, int64_t low,
                                   int64_t high) {
  constexpr float bits = 15.0f, most_raised = 24.0f;
  constexpr int32_t least = -60;  // a smaller scale is nothing, and its weights might be infinite
  bool known = t.range.end - t.range.begin == 1 && r % t.head_rows() > 0;  // of one query all heads see the same
  float scale = known ? t.largest_scales()[r - 1] : largest_scale(t.value_scales(r), from, to, low, high);
  t.largest_scales()[r] = scale;
  uint32_t size;
  std::memcpy(&size, &scale, sizeof(size));
  int32_t above = static_cast<int32_t>(size >> 23) - 126;  // 2^above is larger
  float wanted = peak - bits + static_cast<float>(above < least ? least : above) + scale * 0.0f;  // a NaN stays one
  float lowest = t.highest()[r] - most_raised;
  float chosen = wanted < lowest ? lowest : wanted;
  t.highest()[r] = chosen > t.highest()[r] ? chosen : t.highest()[r];
  return chosen;
}

// The weights of `from .. to - 1`, whole vectors around the keys that row `r` sees.
template <typename P>
CORE_INLINE void weigh_row(const Tile<P>& t, int64_t r, int64_t from, int64_t to, int64_t low, int64_t high,
                           int64_t distance) {
  float* s = t.s() + r * t.stride();
  auto p = t.p() + r * P::words(t.stride());
  float exponent = finish_scores(t, r, from, to, low, high, distance);
  vf best = splat(-__builtin_inff());
  for (int64_t k = from; k < to; k += kLanes) best = vec_max(best, load(s + k));
  float before = t.maxima()[r], now = max_of(best) * exponent;
  if constexpr (P::kRounded) {
    now = choose_reference(t, r, now, from, to, low, high);
  } else {
    now = now > before ? now : before;
  }
  const float* scales = Format<typename P::S>::kScaled ? t.value_scales(r) : nullptr;
  vf total = {};
  for (int64_t k = from; k < to; k += kLanes) {
    vf weight = P::weights(load(s + k) * exponent - now);
    total += weight;
    if constexpr (Format<typename P::S>::kScaled) weight *= seen_scales(scales, k, low, high);
    if constexpr (P::kRounded) weight += P::dither();
    P::store_weights(p, k, weight);
  }
  t.corrections()[r] = before == now ? 0.0f : before - now;
  t.maxima()[r] = now;
  t.fresh()[r] = sum(total);
}

// Turns one row of products into weights, and updates the row's maximum. Keys `low .. high - 1` of the tile's `count`
// are seen; the first key lies `distance` from the row's query. Maxima are kept as exponents of 2, and so is the row's correction until `finish_pass`.
template <typename P>
void softmax_row(const Tile<P>& t, int64_t r, int64_t low, int64_t high, int64_t count, int64_t distance) {
  auto p = t.p() + r * P::words(t.stride());
  int64_t from = low / kLanes * kLanes, to = high > low ? round_up(high, kLanes) : from;
  t.corrections()[r] = 0.0f;
  t.fresh()[r] = 0.0f;
  if (high > low) weigh_row(t, r, from, to, low, high, distance);
  // Not before: weights may lie in the place of the scores.
  for (int64_t k = 0; k < from; k += kLanes) P::store_weights(p, k, vf{});
  for (int64_t k = to; k < count; k += kLanes) P::store_weights(p, k, vf{});
}
constexpr float kMostExponent = 60.0f;

// The weights of a row relative to what was its largest score so far, and their sum; whether one was beyond
// 2^kMostExponent. `exponent`: of 2 for a product of 1.
template <typename P>
CORE_INLINE bool weigh(const float* s, typename P::Weight* p, int64_t from, int64_t to, float exponent, float before,
                       vf* total) {
  constexpr int64_t some = 4;
  vf sums = {}, best = {};
  int64_t k = from;
  for (; k + some * kLanes <= to; k += some * kLanes) {
    vf x[some];
    CORE_UNROLL
    for (int64_t i = 0; i < some; ++i) x[i] = load(s + k + i * kLanes) * exponent - before;
    CORE_UNROLL
    for (int64_t i = 0; i < some; ++i) best = vec_max(best, x[i]);
    P::weights(x);
    CORE_UNROLL
    for (int64_t i = 0; i < some; ++i) {
      sums += x[i];
      P::store_weights(p, k + i * kLanes, x[i]);
    }
  }
  for (; k < to; k += kLanes) {
    vf x = load(s + k) * exponent - before;
    vf weight = P::weights(x);
    best = vec_max(best, x);
    sums += weight;
    P::store_weights(p, k, weight);
  }
  *total = sums;
  return max_of(best) > kMostExponent;
}

// As `softmax_row`, but weights are relative to the largest score of the row's first pass, as long as no later one is so
// much larger that they would overflow: then results need no correction, and a pass goes over its scores once. Returns
// whether a correction is needed.
template <typename P>
bool softmax_row_once(const Tile<P>& t, int64_t r, int64_t low, int64_t high, int64_t count, int64_t distance) {
  float* s = t.s() + r * t.stride();
  auto p = t.p() + r * P::words(t.stride());
  int64_t from = low / kLanes * kLanes, to = high > low ? round_up(high, kLanes) : from;
  for (int64_t k = 0; k < from; k += kLanes) P::store_weights(p, k, vf{});
  for (int64_t k = to; k < count; k += kLanes) P::store_weights(p, k, vf{});
  t.corrections()[r] = 0.0f;
  if (high <= low) return false;
  float exponent = finish_scores(t, r, from, to, low, high, distance), before = t.maxima()[r];
  bool first = before == -__builtin_inff(), corrected = false;
  vf total;
  if (first || weigh<P>(s, p, from, to, exponent, before, &total)) {
    vf best = splat(-__builtin_inff());
    for (int64_t k = from; k < to; k += kLanes) best = vec_max(best, load(s + k));
    float now = max_of(best) * exponent;
    weigh<P>(s, p, from, to, exponent, now, &total);
    t.maxima()[r] = now;
    t.corrections()[r] = first ? 0.0f : before - now;
    corrected = !first;
    if (corrected) store(t.lane_sums(r), load(t.lane_sums(r)) * exp2(splat(before - now))[0]);
  }
  store(t.lane_sums(r), load(t.lane_sums(r)) + total);
  return corrected;
}

// Makes factors of the rows' corrections.
template <typename P>
void make_factors(const Tile<P>& t) {
  for (int64_t r = 0; r < t.rows(); r += kLanes) {
    store(t.corrections() + r, exp2(load(t.corrections() + r)));
  }
}

// The same, and updates the rows' sums.
template <typename P>
void finish_pass(const Tile<P>& t) {
  make_factors(t);
  for (int64_t r = 0; r < t.rows(); r += kLanes) {
    store(t.sums() + r, load(t.sums() + r) * load(t.corrections() + r) + load(t.fresh() + r));
  }
}

// The weight of a head's sink relative to a score of `exponent`, a power of 2.
inline float sink_weight(float sink, float exponent) {
  constexpr float most = 120.0f;  // beyond it nothing else has a weight
  float away = sink * kLog2E - exponent;
  return std::exp2(away < most ? away : most);
}

// Adds the weights of sinks to the rows' sums.
template <typename P>
void add_sinks(const Tile<P>& t) {
  for (int64_t r = 0; r < t.rows(); ++r) t.sums()[r] += sink_weight(t.a.sinks[t.query_head(r)], t.maxima()[r]);
}

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
