// The best of a stream of scores, in memory that depends on how many are wanted and not on how many come.
#pragma once

#include <climits>

#include "attention/pick_plan.h"
#include "common/vec.h"

namespace core {
namespace {

// An integer in the order of the float32 numbers.
CORE_INLINE vi in_order(vf value) {
  vi bits = reinterpret_cast<vi>(value);
  return bits ^ ((bits >> 31) & INT_MAX);
}

CORE_INLINE int32_t in_order(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits ^ ((bits >> 31) & INT_MAX);
}

// Candidates, in the order in which they came. What is not above `low` is none: so many better ones have been seen. A
// score that is no number is above nothing.
class Best {
 public:
  // `memory`: room for `most_candidates(wanted)` scores, and as many positions behind them.
  void begin(void* memory, int64_t wanted) {
    scores_ = static_cast<float*>(memory);
    positions_ = reinterpret_cast<int32_t*>(scores_ + most_candidates(wanted));
    wanted_ = wanted;
  }

  int64_t count() const { return count_; }
  const float* scores() const { return scores_; }
  const int32_t* positions() const { return positions_; }

  // Takes `count` scores, at most `kTileKeys`, of the positions from `first` on. Whole vectors of them are read.
  void take(const float* scores, int64_t count, int64_t first) {
    vi lane = {};
    for (int i = 0; i < kLanes; ++i) lane[i] = i;
    take_vectors(scores, count, [&](int64_t at) { return lane + static_cast<int32_t>(first + at); });
  }

  // The same of positions wherever they are.
  void take(const float* scores, int64_t count, const int32_t* positions) {
    take_vectors(scores, count, [&](int64_t at) { return *reinterpret_cast<const vi_mem*>(positions + at); });
  }

  // Leaves no more than are wanted.
  void cut() {
    if (count_ <= wanted_) return;
    int64_t equal = 0;
    int32_t bound = find_bound(&equal);
    int64_t kept = 0;
    for (int64_t i = 0; i < count_; ++i) {
      int32_t order = in_order(scores_[i]);
      bool stays = order > bound || (order == bound && equal-- > 0);
      scores_[kept] = scores_[i];
      positions_[kept] = positions_[i];
      kept += stays;
    }
    count_ = kept;
    int32_t bits = bound ^ ((bound >> 31) & INT_MAX);
    std::memcpy(&low_, &bits, 4);
  }

 private:
  typedef int32_t vi_mem __attribute__((vector_size(kVecBytes), aligned(1), may_alias));

  template <typename At>
  CORE_INLINE void take_vectors(const float* scores, int64_t count, const At& at) {
    if (count_ + count > wanted_ + spare_candidates(wanted_) + kTileKeys) cut();
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) take_lanes(load(scores + i), at(i), kLanes);
    if (i < count) take_lanes(load(scores + i), at(i), count - i);
  }

  CORE_INLINE void take_lanes(vf scores, vi positions, int64_t count) {
#if defined(__AVX512F__)
    __mmask16 there = static_cast<__mmask16>((1u << count) - 1);
    __mmask16 above = _mm512_mask_cmp_ps_mask(there, (__m512)scores, (__m512)splat(low_), _CMP_GT_OQ);
    if (above == 0) return;
    // Whole vectors: what lies behind the kept ones is written again.
    _mm512_storeu_ps(scores_ + count_, _mm512_maskz_compress_ps(above, (__m512)scores));
    _mm512_storeu_si512(positions_ + count_, _mm512_maskz_compress_epi32(above, (__m512i)positions));
    count_ += __builtin_popcount(above);
#else
    for (int64_t i = 0; i < count; ++i) {
      scores_[count_] = scores[i];
      positions_[count_] = positions[i];
      count_ += scores[i] > low_;
    }
#endif
  }

  int64_t count_above(int32_t bound) const {
    vi sums = {};
    int64_t i = 0, rest = 0;
    for (; i + kLanes <= count_; i += kLanes) sums -= in_order(load(scores_ + i)) > (bound - vi{});
    for (; i < count_; ++i) rest += in_order(scores_[i]) > bound;
    for (int lane = 0; lane < kLanes; ++lane) rest += sums[lane];
    return rest;
  }

  // A number, in the order of scores, above which there are as many as wanted, or fewer and then `equal` of those that
  // are it. Halves what is in doubt, in at most 32 steps whatever the scores are.
  int32_t find_bound(int64_t* equal) const {
    int64_t low = INT_MAX, high = INT_MIN;
    for (int64_t i = 0; i < count_; ++i) {
      int64_t order = in_order(scores_[i]);
      low = order < low ? order : low;
      high = order > high ? order : high;
    }
    int64_t above = 0;
    for (--low; high - low > 1;) {  // more than wanted are above `low`, `above` are above `high`
      int64_t middle = low + (high - low) / 2, count = count_above(static_cast<int32_t>(middle));
      if (count == wanted_) return static_cast<int32_t>(middle);
      if (count > wanted_) {
        low = middle;
      } else {
        high = middle;
        above = count;
      }
    }
    *equal = wanted_ - above;
    return static_cast<int32_t>(high);
  }

  float* scores_ = nullptr;
  int32_t* positions_ = nullptr;
  int64_t wanted_ = 0, count_ = 0;
  float low_ = -__builtin_inff();
};

}  // namespace
}  // namespace core
