// The sampling kernels for the instruction set of the including file, in namespace core::CORE_VARIANT.
#include "common/parallel.h"
#include "common/vec.h"
#include "sampling/sampling.h"
#include "sampling/select.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// Below this many elements a team costs more than it saves.
constexpr int64_t kGrain = 1 << 17;
constexpr int64_t kGroup = 256, kMostGroups = 2048;
constexpr float kLog2E = 1.44269504f;

// ---- vectors of a row ----------------------------------------------------------------------------------------------

// The elements from `i` on; lanes past the row's end are minus infinity.
template <typename T>
CORE_INLINE vf load_row(const T* x, int64_t i, int64_t size) {
  if (i + kLanes <= size) return load(x + i);
  float part[kLanes];
  for (int64_t lane = 0; lane < kLanes; ++lane) part[lane] = i + lane < size ? to_float(x[i + lane]) : -__builtin_inff();
  return load(part);
}

// One bit per lane of `value` that is at least `bound`.
CORE_INLINE uint32_t lanes_from(vf value, vf bound) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)value, (__m512)bound, _CMP_GE_OQ);
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps((__m256)value, (__m256)bound, _CMP_GE_OQ)));
#else
  uint32_t bits = 0;
  for (int lane = 0; lane < kLanes; ++lane) bits |= static_cast<uint32_t>(value[lane] >= bound[lane]) << lane;
  return bits;
#endif
}

CORE_INLINE bool any(vi mask) {
  int32_t bits = 0;
  for (int lane = 0; lane < kLanes; ++lane) bits |= mask[lane];
  return bits != 0;
}

// ---- the largest value of a row ------------------------------------------------------------------------------------

// The largest value of each group of kGroup elements goes to `groups`, if there is one. A NaN anywhere is the result.
template <typename T>
float largest(const T* x, int64_t size, float* groups, int64_t* group_of) {
  float best = -__builtin_inff();
  vi nan = {};
  *group_of = 0;
  for (int64_t from = 0; from < size; from += kGroup) {
    int64_t to = from + kGroup < size ? from + kGroup : size;
    vf a = splat(-__builtin_inff()), b = a;
    int64_t i = from;
    for (; i + 2 * kLanes <= to; i += 2 * kLanes) {
      vf u = load(x + i), v = load(x + i + kLanes);
      a = vec_max(u, a);  // in this order a NaN is passed over
      b = vec_max(v, b);
      nan |= (u != u) | (v != v);
    }
    for (; i < to; i += kLanes) {
      vf u = load_row(x, i, to);
      a = vec_max(u, a);
      nan |= u != u;
    }
    float value = max_of(vec_max(a, b));
    if (groups != nullptr) groups[from / kGroup] = value;
    if (value > best) {
      best = value;
      *group_of = from / kGroup;
    }
  }
  return any(nan) ? __builtin_nanf("") : best;
}

template <typename T>
void argmax_rows(const core_argmax_args& a) {
  parallel_for(a.rows, a.threads, ceil_div(kGrain, a.size), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      auto x = static_cast<const T*>(a.logits) + row * a.stride;
      int64_t group = 0;
      float best = largest(x, a.size, nullptr, &group);
      int64_t place = best == best ? group * kGroup : 0;
      if (best == best) {
        while (to_float(x[place]) != best) ++place;
      }
      a.best[row] = best;
      a.places[row] = place;
    }
  });
}

// ---- drawing -------------------------------------------------------------------------------------------------------

// One entry: a row and what it is drawn with.
template <typename T>
struct Entry {
  const T* x;
  int64_t size;
  float best, inverse;  // scaled value = (x - best) * inverse
  int64_t top_k;
  double top_p, min_p, uniform;

  CORE_INLINE vf scaled(int64_t i) const { return (load_row(x, i, size) - best) * inverse; }
};

// Draws from all of a row: sums of groups first, then token by token in the group that the target falls into.
template <typename T>
int64_t draw_all(const Entry<T>& e) {
  constexpr int64_t group = 4096, most = 256;
  double sums[most];
  int64_t step = round_up(ceil_div(e.size, most), kLanes) > group ? round_up(ceil_div(e.size, most), kLanes) : group;
  double total = 0.0;
  for (int64_t from = 0; from < e.size; from += step) {
    int64_t to = from + step < e.size ? from + step : e.size;
    vf mass = {};
    for (int64_t i = from; i < to; i += kLanes) mass += exp2(e.scaled(i) * kLog2E);
    total += sums[from / step] = static_cast<double>(sum(mass));
  }
  double target = e.uniform * total, before = 0.0;
  int64_t from = 0, last = 0;
  while (from + step < e.size && before + sums[from / step] <= target) {
    before += sums[from / step];
    from += step;
  }
  for (int64_t i = from; i < e.size; i += kLanes) {
    vf mass = exp2(e.scaled(i) * kLog2E);
    for (int64_t lane = 0; lane < kLanes && i + lane < e.size; ++lane) {
      if (!(mass[lane] > 0.0f)) continue;
      before += static_cast<double>(mass[lane]);
      last = i + lane;
      if (before > target) return last;
    }
  }
  return last;
}

// Masses of everything, and of what is at least -4, -8 and -16.
struct Masses {
  double all;
  double from[3];
};
constexpr float kBounds[3] = {-4.0f, -8.0f, -16.0f};

template <typename T>
Masses masses_of(const Entry<T>& e) {
  Masses total = {};
  for (int64_t from = 0; from < e.size; from += kGroup * 16) {
    int64_t to = from + kGroup * 16 < e.size ? from + kGroup * 16 : e.size;
    vf all = {}, a = {}, b = {}, c = {};
    for (int64_t i = from; i < to; i += kLanes) {
      vf value = e.scaled(i), mass = exp2(value * kLog2E);
      all += mass;
      a += value >= kBounds[0] ? mass : vf{};
      b += value >= kBounds[1] ? mass : vf{};
      c += value >= kBounds[2] ? mass : vf{};
    }
    total.all += static_cast<double>(sum(all));
    total.from[0] += static_cast<double>(sum(a));
    total.from[1] += static_cast<double>(sum(b));
    total.from[2] += static_cast<double>(sum(c));
  }
  return total;
}

// Appends the lanes of `bits` to `found`.
CORE_INLINE void append(Tokens* found, vf value, vf mass, int64_t first, uint32_t bits) {
  float *values = found->values + found->count, *masses = found->masses + found->count;
  int32_t* ids = found->ids + found->count;
#if defined(__AVX512F__)
  const __m512i ramp = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  auto lanes = static_cast<__mmask16>(bits);
  __m512i id = _mm512_add_epi32(ramp, _mm512_set1_epi32(static_cast<int32_t>(first)));
  _mm512_storeu_ps(values, _mm512_maskz_compress_ps(lanes, (__m512)value));
  _mm512_storeu_ps(masses, _mm512_maskz_compress_ps(lanes, (__m512)mass));
  _mm512_storeu_si512(ids, _mm512_maskz_compress_epi32(lanes, id));
  found->count += __builtin_popcount(bits);
#else
  int64_t count = 0;
  for (; bits != 0; bits &= bits - 1) {
    int lane = __builtin_ctz(bits);
    values[count] = value[lane];
    masses[count] = mass[lane];
    ids[count++] = static_cast<int32_t>(first + lane);
  }
  found->count += count;
#endif
}

// Finds the tokens that are at least `bound`.
template <typename T>
void collect(const Entry<T>& e, float bound, Tokens* found) {
  vf limit = splat(bound);
  for (int64_t i = 0; i < e.size; i += kLanes) {
    vf value = e.scaled(i);
    uint32_t bits = lanes_from(value, limit);
    if (i + kLanes > e.size) bits &= (1u << (e.size - i)) - 1u;  // minus infinity is at least minus infinity
    if (bits != 0) append(found, value, exp2(value * kLog2E), i, bits);
  }
}

// A bound below which top-k keeps nothing: the largest values of k groups are at or above it.
template <typename T>
float bound_of_top_k(const Entry<T>& e, float* ones) {
  float groups[kMostGroups];
  int64_t count = ceil_div(e.size, kGroup), ignored = 0;
  if (e.top_k > count || count > kMostGroups) return -__builtin_inff();
  largest(e.x, e.size, groups, &ignored);
  for (int64_t i = 0; i < count; ++i) ones[i] = 1.0f;
  return (cut_among({groups, ones, count}, 0.0, static_cast<double>(e.top_k)) - e.best) * e.inverse;
}

template <typename T>
int64_t draw_truncated(const Entry<T>& e, char* scratch) {
  constexpr float none = -__builtin_inff();
  int64_t room = e.size + CORE_DRAW_PAD;
  auto work = reinterpret_cast<float*>(scratch), values = work + 2 * room, masses = values + room;
  Tokens found = {values, masses, reinterpret_cast<int32_t*>(masses + room), 0};
  bool by_k = e.top_k > 0 && e.top_k < e.size, by_p = e.top_p < 1.0;
  float low = e.min_p > 0.0 ? static_cast<float>(__builtin_log(e.min_p)) : none;
  float bound = by_k ? bound_of_top_k(e, work) : by_p ? none : low;
  double total = 0.0;
  if (by_p && !by_k) {
    Masses all = masses_of(e);
    total = all.all;
    // A little more than needed, because sums in another order differ in their last digits.
    for (int i = 2; i >= 0 && all.from[i] >= (e.top_p + 1e-5) * total; --i) bound = kBounds[i];
  }
  collect(e, bound, &found);
  float cut = none;
  if (by_k) {
    cut = cut_by_mass(values, nullptr, found.count, static_cast<double>(e.top_k), bound, work);
    total = mass_above<false>(values, masses, found.count, cut);
  }
  // Above any value that top-k leaves out lies all of `total`, so that this cut is never below the other.
  if (by_p) cut = __builtin_fmaxf(cut, cut_by_mass(values, masses, found.count, e.top_p * total, bound, work));
  return pick(found, cut > low ? cut : low, e.uniform);
}

template <typename T>
void draw_rows(const core_draw_args& a) {
  run_pieces(a.threads, a.count, [&](int64_t thread, Pieces& pieces) {
    auto scratch = static_cast<char*>(a.scratch) + thread * CORE_DRAW_SCRATCH * (a.size + CORE_DRAW_PAD);
    for (int64_t i; pieces.take(&i);) {
      auto x = static_cast<const T*>(a.logits) + (a.rows != nullptr ? a.rows[i] : i) * a.stride;
      const double* n = a.numbers + i;
      int64_t ignored = 0;
      float best = largest(x, a.size, nullptr, &ignored);
      Entry<T> e = {x, a.size, best, 1.0f / static_cast<float>(n[0]), static_cast<int64_t>(n[a.count]),
                    n[2 * a.count], n[3 * a.count], n[4 * a.count]};
      bool sound = best - best == 0.0f;
      bool cut = a.truncated != 0 && (e.top_k > 0 || e.top_p < 1.0 || e.min_p > 0.0);
      a.out[i] = !sound ? 0 : cut ? draw_truncated(e, scratch) : draw_all(e);
    }
  });
}

}  // namespace

void argmax(const core_argmax_args* a) { a->dtype == CORE_BF16 ? argmax_rows<bf16>(*a) : argmax_rows<float>(*a); }

void draw(const core_draw_args* a) { a->dtype == CORE_BF16 ? draw_rows<bf16>(*a) : draw_rows<float>(*a); }

}  // namespace CORE_VARIANT
}  // namespace core
