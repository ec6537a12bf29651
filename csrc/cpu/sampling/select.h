// Selection by weight among the tokens that a truncated row is drawn from. Everything is in an unnamed namespace (see
// csrc/README.md), which is also why none of this is the standard library's.
#pragma once

#include "common/vec.h"

namespace core {
namespace {

// Tokens in their order: `count` values, each with its mass and its id. Arrays have room for a vector more.
struct Tokens {
  float* values;
  float* masses;
  int32_t* ids;
  int64_t count;
};

// Values, in arrays of their own, each with its mass.
struct Weighted {
  float* values;
  float* masses;
  int64_t count;
};

constexpr int64_t kBlock = 4096;  // values summed in float32 before float64 takes over

inline void swap(const Weighted& items, int64_t i, int64_t j) {
  float value = items.values[i], mass = items.masses[i];
  items.values[i] = items.values[j];
  items.masses[i] = items.masses[j];
  items.values[j] = value;
  items.masses[j] = mass;
}

inline float median(float a, float b, float c) {
  if ((a <= b) == (b <= c)) return b;
  return (b <= a) == (a <= c) ? a : c;
}

// The smallest value above which there is less mass than `need`, `above` lying above all items; the smallest of all if
// there is never as much. With masses of 1 it is the `need`-th largest. Leaves `items` in another order.
inline float cut_among(const Weighted& items, double above, double need) {
  const float* value = items.values;
  int64_t begin = 0, end = items.count;
  for (;;) {
    float pivot = median(value[begin], value[begin + (end - begin) / 2], value[end - 1]);
    // Greater ones to the front, smaller ones to the back.
    int64_t greater = begin, i = begin, smaller = end;
    double mass_greater = 0.0, mass_equal = 0.0;
    while (i < smaller) {
      if (value[i] > pivot) {
        mass_greater += static_cast<double>(items.masses[i]);
        swap(items, greater++, i++);
      } else if (value[i] < pivot) {
        swap(items, i, --smaller);
      } else {
        mass_equal += static_cast<double>(items.masses[i++]);
      }
    }
    if (greater > begin && above + mass_greater >= need) {
      end = greater;
    } else if (smaller == end || above + mass_greater + mass_equal >= need) {
      return pivot;
    } else {
      above += mass_greater + mass_equal;
      begin = smaller;
    }
  }
}

// Mass of the values above (`strictly`) or from `bound` on; masses null: how many they are.
template <bool strictly>
double mass_above(const float* values, const float* masses, int64_t count, float bound) {
  double total = 0.0;
  for (int64_t from = 0; from < count; from += kBlock) {
    int64_t to = from + kBlock < count ? from + kBlock : count, i = from;
    vf sums = {};
    for (; i + kLanes <= to; i += kLanes) {
      vf value = load(values + i), mass = masses != nullptr ? load(masses + i) : splat(1.0f);
      sums += (strictly ? value > bound : value >= bound) ? mass : vf{};
    }
    total += static_cast<double>(sum(sums));
    for (; i < to; ++i) {
      if (strictly ? values[i] > bound : values[i] >= bound) total += masses != nullptr ? masses[i] : 1.0f;
    }
  }
  return total;
}

// Puts those of `count` values that are above `low` and not above `high` into `to`, which may be where they come from.
inline void narrow(const float* values, const float* masses, int64_t count, float low, float high, Weighted* to) {
  int64_t kept = 0, i = 0;
#if defined(__AVX512F__)
  __m512 above = _mm512_set1_ps(low), most = _mm512_set1_ps(high), one = _mm512_set1_ps(1.0f);
  for (; i + kLanes <= count; i += kLanes) {
    __m512 value = _mm512_loadu_ps(values + i), mass = masses != nullptr ? _mm512_loadu_ps(masses + i) : one;
    __mmask16 inside = _mm512_cmp_ps_mask(value, above, _CMP_GT_OQ) & _mm512_cmp_ps_mask(value, most, _CMP_LE_OQ);
    // Whole vectors: what lies behind the kept ones is written again, and in place it has been read already.
    _mm512_storeu_ps(to->values + kept, _mm512_maskz_compress_ps(inside, value));
    _mm512_storeu_ps(to->masses + kept, _mm512_maskz_compress_ps(inside, mass));
    kept += __builtin_popcount(inside);
  }
#endif
  for (; i < count; ++i) {
    float value = values[i], mass = masses != nullptr ? masses[i] : 1.0f;
    to->values[kept] = value;
    to->masses[kept] = mass;
    kept += static_cast<int64_t>(value > low) & static_cast<int64_t>(value <= high);
  }
  to->count = kept;
}

// As `cut_among` with nothing above, of values between `least`, which may be minus infinity, and 0. Half of the range is
// left out at a time, with the values in it, until a handful is left to be moved. `work` has room for `count` values and
// a vector, twice.
inline float cut_by_mass(const float* values, const float* masses, int64_t count, double need, float least,
                         float* work) {
  constexpr float none = -__builtin_inff();
  constexpr int64_t few = 64;
  constexpr int rounds = 20;
  Weighted doubtful = {work, work + count + kLanes, count};
  float low = least - 1.0f, high = 0.0f, next = low > -32.0f ? 0.5f * low : -16.0f;
  double above = 0.0;
  for (int round = 0; round == 0 || (round < rounds && doubtful.count > few && low != none); ++round) {
    double mass = above + mass_above<true>(values, masses, doubtful.count, next);
    (mass >= need ? low : high) = next;
    if (mass < need) above = mass;
    narrow(values, masses, doubtful.count, low, high, &doubtful);
    values = doubtful.values;
    masses = doubtful.masses;
    next = 0.5f * (low + high);
  }
  return doubtful.count == 0 ? high : cut_among(doubtful, above, need);
}

// The first token whose sum of the masses that are kept (value at least `low`) exceeds `uniform` times their total.
inline int64_t pick(const Tokens& tokens, float low, double uniform) {
  double target = uniform * mass_above<false>(tokens.values, tokens.masses, tokens.count, low), before = 0.0;
  int64_t last = 0;
  for (int64_t from = 0; from < tokens.count; from += kBlock) {
    int64_t to = from + kBlock < tokens.count ? from + kBlock : tokens.count;
    double mass = mass_above<false>(tokens.values + from, tokens.masses + from, to - from, low);
    if (before + mass <= target && to < tokens.count) {
      before += mass;
      continue;
    }
    for (int64_t i = from; i < to; ++i) {
      if (!(tokens.values[i] >= low) || !(tokens.masses[i] > 0.0f)) continue;
      before += static_cast<double>(tokens.masses[i]);
      last = tokens.ids[i];
      if (before > target) return last;
    }
  }
  return last;
}

}  // namespace
}  // namespace core
