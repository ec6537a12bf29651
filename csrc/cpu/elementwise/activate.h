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

// x / (1 + e^-x) of several vectors, to 1e-5 relative: enough where results are rounded to bfloat16. Below -86 it is
// x * 0, and so not a number for -infinity, as in the division. Step by step for all of them, because a processor
// looks only so far ahead of what it waits for.
template <int N>
CORE_INLINE void silu_roughly(vf (&x)[N]) {
#if defined(__AVX512DQ__)
  vf t[N], f[N], p[N];
#define CORE_EACH _Pragma("GCC unroll 8") for (int i = 0; i < N; ++i)
  CORE_EACH t[i] = vec_min(splat(kSiluMost), vec_max(splat(-kSiluMost), x[i] * -1.44269504f));
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
  for (int i = 0; i < N; ++i) x[i] = x[i] * sigmoid(x[i]);
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
  if (Kind == CORE_GELU_TANH) {
    vf inner = (x + x * x * x * 0.044715f) * 1.5957691216f;  // 2 * sqrt(2 / pi): tanh(u) = 2 * sigmoid(2 u) - 1
    return x * sigmoid(inner);
  }
  vf size = x < 0.0f ? -x : x;
  vf tail = erfc(size * 0.70710678f) * 0.5f;
  return x * (x < 0.0f ? tail : 1.0f - tail);
}

// The same for several vectors.
template <typename T, int64_t Kind, int N>
CORE_INLINE void activate(vf (&x)[N]) {
  if (Kind == CORE_SILU && std::is_same<T, bf16>::value) return silu_roughly(x);
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) x[i] = activate<T, Kind>(x[i]);
}

}  // namespace
}  // namespace core
