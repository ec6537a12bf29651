// Activations of gated layers. Included per instruction set; everything is in an unnamed namespace.
#pragma once

#include <type_traits>

#include "common/vec.h"
#include "elementwise/elementwise.h"

namespace core {
namespace {

#if defined(__AVX512DQ__)
constexpr float kSiluMost = 125.0f;  // of a power of two whose reciprocal is no denormal

CORE_INLINE __mmask16 below(__m512 t) { return _mm512_cmp_ps_mask(t, _mm512_set1_ps(kSiluMost), _CMP_LT_OQ); }
#endif

// x / (1 + e^-y) of several vectors, to 1e-5 relative: enough where results are rounded to bfloat16. For y below -86 it
// is x * 0, and so not a number for -infinity, as in the division. Step by step for all of them, because a processor
// looks only so far ahead of what it waits for.
template <int N>
CORE_INLINE void sigmoid_roughly(vf (&x)[N], const vf (&y)[N]) {
#if defined(__AVX512DQ__)
  vf t[N], f[N], p[N];
#define CORE_EACH _Pragma("GCC unroll 8") for (int i = 0; i < N; ++i)
  CORE_EACH t[i] = vec_min(splat(kSiluMost), vec_max(splat(-kSiluMost), y[i] * -1.44269504f));
  CORE_EACH f[i] = (vf)_mm512_reduce_ps((__m512)t[i], 9);  // t - floor(t)
  // 2^f with the least relative error on [0, 1), the first coefficient held at 1.
  CORE_EACH p[i] = f[i] * 0.013426718302071095f + 0.052242398262023926f;
  CORE_EACH p[i] = p[i] * f[i] + 0.24128025770187378f;
  CORE_EACH p[i] = p[i] * f[i] + 0.6930448412895203f;
  CORE_EACH p[i] = p[i] * f[i] + 1.0f;
  CORE_EACH p[i] = 1.0f + (vf)_mm512_scalef_ps((__m512)p[i], (__m512)t[i]);
  CORE_EACH f[i] = (vf)_mm512_rcp14_ps((__m512)p[i]);
  CORE_EACH p[i] = 2.0f - p[i] * f[i];
  CORE_EACH x[i] = x[i] * (vf)_mm512_maskz_mul_ps(below((__m512)t[i]), (__m512)f[i], (__m512)p[i]);
#undef CORE_EACH
#else
  for (int i = 0; i < N; ++i) x[i] = x[i] * sigmoid(y[i]);
#endif
}

template <int N>
CORE_INLINE void silu_roughly(vf (&x)[N]) {
  vf y[N];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) y[i] = x[i];
  sigmoid_roughly(x, y);
}

CORE_INLINE vf tanh_argument(vf x) {
  return (x + x * x * x * 0.044715f) * 1.5957691216f;  // 2 * sqrt(2 / pi): tanh(u) = 2 * sigmoid(2 u) - 1
}

// The exact GELU of several vectors, to 2e-5 relative; 0 below -13, where it is next to nothing.
template <int N>
CORE_INLINE void gelu_roughly(vf (&x)[N]) {
#if defined(__AVX512DQ__)
  vf z[N], t[N], p[N], e[N];
#define CORE_EACH _Pragma("GCC unroll 8") for (int i = 0; i < N; ++i)
  CORE_EACH z[i] = as_float(as_bits(x[i]) & 0x7fffffffu) * 0.70710678f;
  // erfc(z) = e^(-z^2) times a polynomial in t = 1 / (1 + 0.43 z), of the least relative error.
  CORE_EACH e[i] = z[i] * 0.43f + 1.0f;
  CORE_EACH t[i] = (vf)_mm512_rcp14_ps((__m512)e[i]);
  CORE_EACH t[i] = vec_min(t[i] * (2.0f - t[i] * e[i]), t[i]);  // of infinity: not a number, and 0
  CORE_EACH p[i] = t[i] * -0.153386190533638f + 0.4070437550544739f;
  CORE_EACH p[i] = p[i] * t[i] - 0.010783580131828785f;
  CORE_EACH p[i] = p[i] * t[i] + 0.28136277198791504f;
  CORE_EACH p[i] = p[i] * t[i] + 0.23251086473464966f;
  CORE_EACH p[i] = p[i] * t[i] + 0.24325750768184662f;
  CORE_EACH p[i] = p[i] * t[i];
  CORE_EACH z[i] = vec_max(splat(-kSiluMost), z[i] * z[i] * -1.44269504f);
  CORE_EACH e[i] = (vf)_mm512_reduce_ps((__m512)z[i], 9);  // z - floor(z)
  CORE_EACH t[i] = e[i] * 0.013426718302071095f + 0.052242398262023926f;
  CORE_EACH t[i] = t[i] * e[i] + 0.24128025770187378f;
  CORE_EACH t[i] = t[i] * e[i] + 0.6930448412895203f;
  CORE_EACH t[i] = t[i] * e[i] + 1.0f;
  CORE_EACH e[i] = (vf)_mm512_maskz_scalef_ps(
      _mm512_cmp_ps_mask((__m512)z[i], _mm512_set1_ps(-kSiluMost), _CMP_NLE_UQ), (__m512)t[i], (__m512)z[i]);
  CORE_EACH p[i] = p[i] * e[i] * 0.5f;
  CORE_EACH x[i] = x[i] * (x[i] < 0.0f ? p[i] : 1.0f - p[i]);
#undef CORE_EACH
#else
  for (int i = 0; i < N; ++i) {
    vf size = as_float(as_bits(x[i]) & 0x7fffffffu), tail = erfc(size * 0.70710678f) * 0.5f;
    x[i] = x[i] * (x[i] < 0.0f ? tail : 1.0f - tail);
  }
#endif
}

// `T`: what the result is rounded to; `Kind`: enum core_activation.
template <typename T, int64_t Kind>
CORE_INLINE vf activate(vf x) {
  if (Kind == CORE_SILU) {
    if (!std::is_same<T, bf16>::value) return x * sigmoid(x);
    vf one[1] = {x};
    silu_roughly(one);
    return one[0];
  }
  if (Kind == CORE_GELU_TANH) return x * sigmoid(tanh_argument(x));
  vf size = x < 0.0f ? -x : x;
  vf tail = erfc(size * 0.70710678f) * 0.5f;
  return x * (x < 0.0f ? tail : 1.0f - tail);
}

// The same for several vectors.
template <typename T, int64_t Kind, int N>
CORE_INLINE void activate(vf (&x)[N]) {
  if (Kind == CORE_SILU && std::is_same<T, bf16>::value) return silu_roughly(x);
  if (Kind == CORE_GELU && std::is_same<T, bf16>::value) return gelu_roughly(x);
  if (Kind == CORE_GELU_TANH && std::is_same<T, bf16>::value) {
    vf y[N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) y[i] = tanh_argument(x[i]);
    return sigmoid_roughly(x, y);
  }
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) x[i] = activate<T, Kind>(x[i]);
}

}  // namespace
}  // namespace core
