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

struct Weighted {
  float value;
  float mass;
};

constexpr int64_t kBlock = 4096;  // values summed in float32 before float64 takes over

inline void swap(Weighted& a, Weighted& b) {
  Weighted held = a;
  a = b;
  b = held;
}

inline float median(float a, float b, float c) {
  if ((a <= b) == (b <= c)) return b;
  return (b <= a) == (a <= c) ? a : c;
}

// The smallest value above which there is less mass than `need`, `above` lying above all items; the smallest of all if
// there is never as much. With masses of 1 it is the `need`-th largest. Leaves `items` in another order.
inline float cut_among(Weighted* items, int64_t count, double above, double need) {
  int64_t begin = 0, end = count;
  for (;;) {
    float pivot = median(items[begin].value, items[begin + (end - begin) / 2].value, items[end - 1].value);
    // Greater ones to the front, smaller ones to the back.
    int64_t greater = begin, i = begin, smaller = end;
    double mass_greater = 0.0, mass_equal = 0.0;
    while (i < smaller) {
      if (items[i].value > pivot) {
        mass_greater += static_cast<double>(items[i].mass);
        swap(items[greater++], items[i++]);
      } else if (items[i].value < pivot) {
        swap(items[i], items[--smaller]);
      } else {
        mass_equal += static_cast<double>(items[i++].mass);
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

// As `cut_among` with nothing above, of values that are at most 0: whole vectors narrow the range down first, so that
// only a handful of values is ever moved. `work` has room for `count` items.
inline float cut_by_mass(const float* values, const float* masses, int64_t count, double need, Weighted* work) {
  constexpr float none = -__builtin_inff();
  constexpr int64_t few = 128;
  constexpr int rounds = 14;
  float low = none, high = 0.0f, next = -16.0f;
  double above = 0.0;
  for (int round = 0; round < rounds && count > few; ++round) {
    double mass = mass_above<true>(values, masses, count, next);
    if (mass >= need) {
      low = next;
    } else {
      high = next;
      above = mass;
    }
    if (low == none) break;
    next = 0.5f * (low + high);
  }
  int64_t undecided = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] <= high && (values[i] > low || low == none)) {
      work[undecided++] = {values[i], masses != nullptr ? masses[i] : 1.0f};
    }
  }
  return cut_among(work, undecided, above, need);
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
