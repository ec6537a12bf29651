// The two products of attention, per element type: queries by keys, weights by values.
#pragma once

#include <type_traits>

#include "attention/formats.h"
#include "attention/plan.h"

namespace core {
namespace CORE_VARIANT {
namespace {

// Register tiles: query vectors (`kRows` of the element type) x vectors of keys for scores, x vectors of dimensions for
// values. 16 registers allow 6 x 2 where a multiply-add takes no register of its own; AVX-512 and NEON have 32.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int64_t kFewRows = 4, kManyRows = 6, kDims = 4;
#elif defined(__AVX2__)
constexpr int64_t kFewRows = 4, kManyRows = 6, kDims = 2;
#else
constexpr int64_t kFewRows = 4, kManyRows = 4, kDims = 2;
#endif
constexpr int64_t kKeyVectors = 2;

// What a product asks for when it reads a vector: nothing, or what lies `away` bytes further on. It comes to the second
// cache level, because the first one can wait for few lines only.
struct NoAsking {
  CORE_INLINE void at(const void*) const {}
};
struct Asking {
  int64_t away;
  CORE_INLINE void at(const void* p) const { __builtin_prefetch(static_cast<const char*>(p) + away, 0, 2); }
};

// Calls body(ask) for the first rows that read something, body(NoAsking) for those that read it again.
template <typename Ask, typename Body>
CORE_INLINE void ask_once(bool first, Ask ask, const Body& body) {
  if (std::is_same<Ask, NoAsking>::value || first) return body(ask);
  body(NoAsking{});
}

template <int64_t N>
struct Count {
  static constexpr int64_t value = N;
};

// Calls body(Count<n>) for n = count, at most Most.
template <int64_t Most, typename Body>
CORE_INLINE void with_rows(int64_t count, const Body& body) {
  if constexpr (Most > 1) {
    if (count < Most) return with_rows<Most - 1>(count, body);
  }
  body(Count<Most>{});
}

// Queries, weights and sums of float32.
struct Floats {
  using Query = float;
  using Weight = float;
  using Sum = vf;
  static constexpr bool kBfloat16Queries = false, kRounded = false;

  template <typename Q>
  static void load_query(const Q* q, float* out, int64_t head_dim) {
    for (int64_t d = 0; d < head_dim; d += kLanes) store(out + d, load(q + d));
  }
  CORE_INLINE static void store_weights(float* p, int64_t k, vf weights) { store(p + k, weights); }
};

// Keys dimension by dimension, values token by token, widened to float32 as they are read.
template <typename S, int64_t Pack = kPackOf<S>>
struct Widened : Floats {
  using T = S;
  static constexpr int64_t kPack = 1, kWords = 1, kRows = kManyRows;

  struct Vector {
    vf v;
  };
  CORE_INLINE static Vector vector(const S* p) { return {load(p)}; }
  CORE_INLINE static vf multiply(vf sum, const float* broadcast, Vector b) { return sum + *broadcast * b.v; }
};

// The same of pairs.
template <typename S>
struct Widened<S, 2> : Floats {
  using T = S;
  static constexpr int64_t kPack = 2, kWords = 2, kRows = kFewRows;

  using Vector = Pairs;
  CORE_INLINE static Vector vector(const S* p) { return load_pairs(p); }
  CORE_INLINE static vf multiply(vf sum, const float* broadcast, Vector b) {
    return sum + broadcast[0] * b.first + broadcast[1] * b.second;
  }
};

// Processors with AMX make one dot product of pairs in the time of four multiply-adds: there, widening is faster.
#if (defined(__AVX512BF16__) && !defined(__AMX_BF16__)) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define CORE_ATTENTION_DOT 1
// bfloat16 in pairs, with the dot product of pairs; bfloat16 queries.
struct Dot {
  using T = bf16;
  using Query = uint32_t;
  using Weight = uint32_t;
  using Sum = vf;
  static constexpr int64_t kPack = 2, kWords = 1, kRows = kManyRows;
  static constexpr bool kBfloat16Queries = true, kRounded = false;

  static void load_query(const bf16* q, uint32_t* out, int64_t head_dim) {
    std::memcpy(out, q, static_cast<size_t>(head_dim) * 2);
  }
  CORE_INLINE static void store_weights(uint32_t* p, int64_t k, vf weights) {
    store(reinterpret_cast<bf16*>(p) + k, weights);
  }

  struct Vector {
    vu v;
  };
  CORE_INLINE static Vector vector(const bf16* p) { return {load_bits(p)}; }
  CORE_INLINE static vf multiply(vf sum, const uint32_t* broadcast, Vector b) {
#if defined(__aarch64__)
    return (vf)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)b.v, (bfloat16x8_t)splat_bits(*broadcast));
#else
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)(vu)splat_bits(*broadcast), (__m512bh)b.v);
#endif
  }
};
#endif

CORE_INLINE vf numbers(vf sum) { return sum; }
CORE_INLINE vf numbers(vi sum) { return __builtin_convertvector(sum, vf); }

#if defined(__aarch64__)
// Sums of four pairs, the two numbers of each in lanes next to one another.
struct PairSums {
  int32x4_t low, high;
};
CORE_INLINE vf numbers(PairSums sums) { return numbers((vi)vpaddq_s32(sums.low, sums.high)); }
#endif

#if defined(__AVX2__) || defined(__aarch64__)
#define CORE_ATTENTION_WHOLE 1
// int8 in pairs, as integers of 16 bits. Queries and weights are rounded to such integers: a query in a unit of its own
// (`Tile::query_units`), weights relative to what makes them fit (`choose_reference`). Sums of the products are exact.
struct Whole {
  using T = i8;
  using Query = uint32_t;
  using Weight = uint32_t;
#if defined(__aarch64__)
  using Sum = PairSums;
  static constexpr int64_t kRows = 3;
#elif defined(__AVX512F__)
  using Sum = vi;
  static constexpr int64_t kRows = kManyRows;
#else
  using Sum = vi;
  static constexpr int64_t kRows = kFewRows;
#endif
  static constexpr int64_t kPack = 2, kWords = 1;
  static constexpr bool kBfloat16Queries = false, kRounded = true;
  static constexpr int32_t kMost = 32767;
  static_assert(int64_t{127} * kMost * kWideKeys < int64_t{1} << 31, "a sum over a pass has to fit");

  // Returns the unit; a NaN for a query that is not finite.
  template <typename Q>
  static float load_query(const Q* q, uint32_t* out, int64_t head_dim) {
    constexpr float least = 1e-30f;  // less is nothing: its inverse might be infinite
    float unit = scale_of(q, head_dim) * (127.0f / kMost), inverse = unit > least ? 1.0f / unit : 0.0f;
    for (int64_t d = 0; d < head_dim; d += kLanes) store_weights(out, d, load(q + d) * inverse);
    return unit;
  }
  // 2^x to 3e-6 relative, no less than 2^-126: weights are rounded.
  CORE_INLINE static vf power(vf x) {
#if defined(__AVX512F__)
    x = vec_max(splat(-126.0f), x);
    vf f = (vf)_mm512_reduce_ps((__m512)x, 9);  // x - floor(x)
    // Least relative error on [0, 1), the first coefficient held at 1.
    vf p = f * 0.013426519930362701f + 0.052242737263441086f;
    p = p * f + 0.24128007888793945f;
    p = p * f + 0.6930448412895203f;
    p = p * f + 1.0f;
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)x);  // which takes the floor of x
#else
    return exp2(x);
#endif
  }
  // What is added to weights before they are rounded, so that as many go up as down: small ones count together.
  CORE_INLINE static vf dither() {
    vf steps = {};
    for (int i = 0; i < kLanes; ++i) steps[i] = (static_cast<float>(i) + 0.5f) / kLanes - 0.5f;
    return steps;
  }
  // Rounds to nearest.
  CORE_INLINE static void store_weights(uint32_t* p, int64_t k, vf weights) {
    auto to = reinterpret_cast<int16_t*>(p) + k;
#if defined(__AVX512F__)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32((__m512)weights)));
#elif defined(__aarch64__)
    vst1_s16(to, vqmovn_s32(vcvtnq_s32_f32((float32x4_t)weights)));
#else
    __m256i whole = _mm256_cvtps_epi32((__m256)weights);
    __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
#endif
  }

#if defined(__aarch64__)
  struct Vector {
    int16x8_t v;
  };
  CORE_INLINE static Vector vector(const i8* p) { return {vmovl_s8(vld1_s8(&p->value))}; }
  CORE_INLINE static PairSums multiply(PairSums sums, const uint32_t* broadcast, Vector b) {
    int16x8_t pair = vreinterpretq_s16_u32(vdupq_n_u32(*broadcast));
    return {vmlal_s16(sums.low, vget_low_s16(pair), vget_low_s16(b.v)), vmlal_high_s16(sums.high, pair, b.v)};
  }
#else
  struct Vector {
    vi v;
  };
  CORE_INLINE static Vector vector(const i8* p) {
#if defined(__AVX512F__)
    return {(vi)_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
#else
    return {(vi)_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
#endif
  }
  CORE_INLINE static vi multiply(vi sum, const uint32_t* broadcast, Vector b) {
    vu pair = splat_bits(*broadcast);
#if defined(__AVX512VNNI__)
    return (vi)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)pair, (__m512i)b.v);
#elif defined(__AVX512F__)
    return sum + (vi)_mm512_madd_epi16((__m512i)pair, (__m512i)b.v);
#else
    return sum + (vi)_mm256_madd_epi16((__m256i)pair, (__m256i)b.v);
#endif
  }
#endif
};
#endif

// The loops, written once for every element type `E`. A "step" is one dimension (scores) or one token (values), or a
// pair of them where elements lie in pairs.
template <typename E>
struct Loops : E {
  using T = typename E::T;
  using Query = typename E::Query;
  using Weight = typename E::Weight;
  static constexpr int64_t kPack = E::kPack, kWords = E::kWords;
  static constexpr int64_t kTileRows = 48, kKeys = 16, kPass = kTileKeys;  // keys come in multiples of kKeys
  static constexpr bool kGathers = false;

  CORE_INLINE static vf weights(vf exponents) {
    if constexpr (E::kRounded) return E::power(exponents);
    return exp2(exponents);
  }
  template <int N>
  CORE_INLINE static void weights(vf (&exponents)[N]) {
    CORE_UNROLL
    for (int i = 0; i < N; ++i) exponents[i] = weights(exponents[i]);
  }

  // Around the products of one tile of query vectors.
  static void enter(int64_t) {}
  static void leave() {}

  // Words that one query vector, or one row of weights, takes.
  static constexpr int64_t words(int64_t elements) { return elements / kPack * kWords; }

  // s[r][0 .. count) = q[r] . key[offset .. offset + count), a multiple of 16, for `rows` query vectors.
  template <typename Ask = NoAsking>
  static void scores(const Query* q, const T* keys, float* s, int64_t s_stride, int64_t rows, int64_t head_dim,
                     int64_t block_size, int64_t offset, int64_t count, Ask ask = {}) {
    for (int64_t k = 0; k < count;) {
      bool wide = count - k >= kKeyVectors * kLanes;
      const T* at = keys + (offset + k) * kPack;
      wide ? score_rows<kKeyVectors>(q, at, s + k, s_stride, rows, head_dim, block_size, ask)
           : score_rows<1>(q, at, s + k, s_stride, rows, head_dim, block_size, ask);
      k += wide ? kKeyVectors * kLanes : kLanes;
    }
  }

  // o[r] = o[r] * corrections[r] + sum of weights * values, over `count` tokens from `offset` on; null corrections
  // are 1. `p` is the first token's weight of row 0.
  template <typename Ask = NoAsking>
  static void accumulate(const Weight* p, int64_t p_stride, const T* values, float* o, const float* corrections,
                         int64_t rows, int64_t head_dim, int64_t offset, int64_t count, Ask ask = {}) {
    accumulate_apart(p, p_stride, values, head_dim, o, corrections, rows, head_dim, offset, count, ask);
  }

  // The same of tokens that lie `stride` apart.
  template <typename Ask = NoAsking>
  static void accumulate_apart(const Weight* p, int64_t p_stride, const T* values, int64_t stride, float* o,
                               const float* corrections, int64_t rows, int64_t head_dim, int64_t offset,
                               int64_t count, Ask ask = {}) {
    int64_t steps = ceil_div(count, kPack);
    for (int64_t d = 0; d < head_dim;) {
      int64_t left = (head_dim - d) / kLanes, dims = left >= kDims ? kDims : left >= 2 ? 2 : 1;
      const T* at = values + (offset / kPack * stride + d) * kPack;
      for (int64_t r = 0; r < rows; r += E::kRows) {
        const Weight* from = p + r * p_stride;
        float* to = o + r * head_dim + d;
        const float* c = corrections == nullptr ? nullptr : corrections + r;
        ask_once(r == 0, ask, [&](auto asking) __attribute__((always_inline)) {
          with_rows<E::kRows>(rows - r, [&](auto n) __attribute__((always_inline)) {
            constexpr int64_t n_rows = decltype(n)::value;
            if (dims == kDims) {
              return value_tile<n_rows, kDims>(from, p_stride, at, stride, to, c, head_dim, steps, asking);
            }
            if (dims == 2) return value_tile<n_rows, 2>(from, p_stride, at, stride, to, c, head_dim, steps, asking);
            value_tile<n_rows, 1>(from, p_stride, at, stride, to, c, head_dim, steps, asking);
          });
        });
      }
      d += dims * kLanes;
    }
  }

 private:
  // A single vector of keys meets twice as many query vectors at a time: sums enough not to wait for each other.
  template <int64_t Keys, typename Ask>
  CORE_INLINE static void score_rows(const Query* q, const T* keys, float* s, int64_t s_stride, int64_t rows,
                                     int64_t head_dim, int64_t block_size, Ask ask) {
    constexpr int64_t most = E::kRows * kKeyVectors / Keys;
    for (int64_t r = 0; r < rows; r += most) {
      const Query* from = q + r * words(head_dim);
      ask_once(r == 0, ask, [&](auto asking) __attribute__((always_inline)) {
        with_rows<most>(rows - r, [&](auto n) __attribute__((always_inline)) {
          constexpr int64_t n_rows = decltype(n)::value;
          score_tile<n_rows, Keys>(from, keys, s + r * s_stride, s_stride, head_dim, block_size, asking);
        });
      });
    }
  }

  // Reads `N` vectors that lie next to each other, and asks once for each line of them.
  template <int64_t N, typename Ask>
  CORE_INLINE static void read(const T* from, typename E::Vector (&v)[N], Ask ask) {
    CORE_UNROLL
    for (int64_t j = 0; j < N; ++j) {
      v[j] = E::vector(from + j * kLanes * kPack);
      if (j * kLanes * kPack * static_cast<int64_t>(sizeof(T)) % 64 == 0) ask.at(from + j * kLanes * kPack);
    }
  }

  template <int64_t Rows, int64_t Keys, typename Ask>
  CORE_INLINE static void score_tile(const Query* q, const T* keys, float* s, int64_t s_stride, int64_t head_dim,
                                     int64_t block_size, Ask ask) {
    typename E::Sum sums[Rows][Keys] = {};
    for (int64_t step = 0; step < head_dim / kPack; ++step) {
      typename E::Vector k[Keys];
      read(keys + step * block_size * kPack, k, ask);
      CORE_UNROLL
      for (int64_t r = 0; r < Rows; ++r) {
        const Query* broadcast = q + r * words(head_dim) + step * kWords;
        CORE_UNROLL
        for (int64_t j = 0; j < Keys; ++j) sums[r][j] = E::multiply(sums[r][j], broadcast, k[j]);
      }
    }
    CORE_UNROLL
    for (int64_t r = 0; r < Rows; ++r) {
      CORE_UNROLL
      for (int64_t j = 0; j < Keys; ++j) store(s + r * s_stride + j * kLanes, numbers(sums[r][j]));
    }
  }

  template <int64_t Rows, int64_t Dims, typename Ask>
  CORE_INLINE static void value_tile(const Weight* p, int64_t p_stride, const T* values, int64_t stride, float* o,
                                     const float* corrections, int64_t head_dim, int64_t steps, Ask ask) {
    typename E::Sum sums[Rows][Dims] = {};
    auto before = [&](int64_t r, int64_t j) __attribute__((always_inline)) {
      return load(o + r * head_dim + j * kLanes) * (corrections == nullptr ? 1.0f : corrections[r]);
    };
    if constexpr (!E::kRounded) {
      CORE_UNROLL
      for (int64_t r = 0; r < Rows; ++r) {
        CORE_UNROLL
        for (int64_t j = 0; j < Dims; ++j) sums[r][j] = before(r, j);
      }
    }
    for (int64_t step = 0; step < steps; ++step) {
      typename E::Vector v[Dims];
      read(values + step * stride * kPack, v, ask);
      CORE_UNROLL
      for (int64_t r = 0; r < Rows; ++r) {
        const Weight* broadcast = p + r * p_stride + step * kWords;
        CORE_UNROLL
        for (int64_t j = 0; j < Dims; ++j) sums[r][j] = E::multiply(sums[r][j], broadcast, v[j]);
      }
    }
    CORE_UNROLL
    for (int64_t r = 0; r < Rows; ++r) {
      CORE_UNROLL
      for (int64_t j = 0; j < Dims; ++j) {
        vf added = E::kRounded ? before(r, j) + numbers(sums[r][j]) : numbers(sums[r][j]);
        store(o + r * head_dim + j * kLanes, added);
      }
    }
  }
};

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
