// The two products of attention by AMX: bfloat16, head_dim and block_size multiples of 32.
//
// A register tile of C is 16 query vectors by 16 keys (or dimensions). The cache's pairs are the form that the tile
// product wants its second operand in, so blocks are loaded as they lie. C takes 2 x 2 tiles; A and B two each.
#pragma once

#include "attention/formats.h"
#include "attention/plan.h"
#include "attention/products.h"

namespace core {
namespace CORE_VARIANT {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};

struct Tiles {
  using T = bf16;
  using Query = bf16;
  using Weight = bf16;
  static constexpr bool kBfloat16Queries = true, kRounded = false;
  static constexpr int64_t kTileRows = kLongTileRows, kRows = 16, kRound = 32, kInner = 32, kKeys = 32;
  static constexpr int64_t kPass = kLongPass;
  // Whether values are handed over block by block (`accumulate_gathered`) for all keys of a pass.
  static constexpr bool kGathers = true;

  static constexpr int64_t words(int64_t elements) { return elements; }

  static void load_query(const bf16* q, bf16* out, int64_t head_dim) {
    std::memcpy(out, q, static_cast<size_t>(head_dim) * 2);
  }
  CORE_INLINE static void store_weights(bf16* p, int64_t k, vf weights) { store(p + k, weights); }

  // 2^x of several vectors to 9e-5 relative, no less than 2^-126: weights are rounded to bfloat16. Step by step for all
  // of them, because a processor looks only so far ahead of what it waits for.
  template <int N>
  CORE_INLINE static void weights(vf (&x)[N]) {
    vf f[N], p[N];
    CORE_UNROLL
    for (int i = 0; i < N; ++i) x[i] = vec_max(splat(-126.0f), x[i]);
    CORE_UNROLL
    for (int i = 0; i < N; ++i) f[i] = (vf)_mm512_reduce_ps((__m512)x[i], 9);  // x - floor(x)
    // Least relative error on [0, 1), the first coefficient held at 1.
    CORE_UNROLL
    for (int i = 0; i < N; ++i) p[i] = f[i] * 0.07706726342439651f + 0.22764462232589722f;
    CORE_UNROLL
    for (int i = 0; i < N; ++i) p[i] = p[i] * f[i] + 0.6951169371604919f;
    CORE_UNROLL
    for (int i = 0; i < N; ++i) p[i] = p[i] * f[i] + 1.0f;
    CORE_UNROLL
    for (int i = 0; i < N; ++i) x[i] = (vf)_mm512_scalef_ps((__m512)p[i], (__m512)x[i]);  // which takes the floor of x
  }
  CORE_INLINE static vf weights(vf x) {
    vf one[1] = {x};
    weights(one);
    return one[0];
  }

  // Registers 0 to 3 are C: rows of the first and the second half of a pair of row blocks. 4 and 5 are A, 6 and 7 B.
  static void configure(int64_t first, int64_t second) {
    TileConfig config;
    for (int i = 0; i < 8; ++i) {
      config.bytes[i] = 64;
      config.rows[i] = static_cast<uint8_t>(i >= 6 ? 16 : i == 2 || i == 3 || i == 5 ? second : first);
    }
    // gcc's _tile_loadconfig tells the compiler of 8 bytes only: it would drop the other stores.
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }

  // For tiles of this many rows. More than 32 take several rounds, each with full tiles but for the last.
  static void enter(int64_t rows) {
    configure(rows < kRows ? rows : kRows, rows > kRows && rows < kRound ? rows - kRows : kRows);
  }
  static void leave() { _tile_release(); }

  static void scores(const bf16* q, const bf16* keys, float* s, int64_t s_stride, int64_t rows, int64_t head_dim,
                     int64_t block_size, int64_t offset, int64_t count, NoAsking = {}) {
    for_row_blocks(rows, [&](int64_t r, bool two) {
      const bf16 *a0 = q + r * head_dim, *a1 = a0 + kRows * head_dim;
      float *c0 = s + r * s_stride, *c1 = c0 + kRows * s_stride;
      for (int64_t k = 0; k < count; k += 2 * 16) {
        const bf16* b = keys + (offset + k) * 2;
        clear(two);
        for (int64_t d = 0; d < head_dim; d += kInner) {
          multiply(a0 + d, a1 + d, head_dim, b + d * block_size, 16 * 2, block_size, two);
        }
        keep(c0 + k, c1 + k, s_stride, two);
      }
    });
  }

  static void accumulate(const bf16* p, int64_t p_stride, const bf16* values, float* o, const float* corrections,
                         int64_t rows, int64_t head_dim, int64_t offset, int64_t count) {
    if (corrections != nullptr) correct(o, corrections, rows, head_dim);
    for_row_blocks(rows, [&](int64_t r, bool two) {
      const bf16 *a0 = p + r * p_stride, *a1 = a0 + kRows * p_stride;
      float *c0 = o + r * head_dim, *c1 = c0 + kRows * head_dim;
      for (int64_t d = 0; d < head_dim; d += 2 * 16) {
        fetch(c0 + d, c1 + d, head_dim, two);
        for (int64_t k = 0; k < count; k += kInner) {
          const bf16* b = values + ((offset + k) * head_dim + d * 2);
          multiply(a0 + k, a1 + k, p_stride, b, 16 * 2, head_dim, two);
        }
        keep(c0 + d, c1 + d, head_dim, two);
      }
    });
  }

  // The same with the values of `steps` times 32 tokens wherever they lie: results stay in registers for all of them.
  static void accumulate_gathered(const bf16* p, int64_t p_stride, const bf16* const* values, int64_t steps, float* o,
                                  const float* corrections, int64_t rows, int64_t head_dim) {
    if (corrections != nullptr) correct(o, corrections, rows, head_dim);
    for_row_blocks(rows, [&](int64_t r, bool two) {
      const bf16 *a0 = p + r * p_stride, *a1 = a0 + kRows * p_stride;
      float *c0 = o + r * head_dim, *c1 = c0 + kRows * head_dim;
      for (int64_t d = 0; d < head_dim; d += 2 * 16) {
        fetch(c0 + d, c1 + d, head_dim, two);
        for (int64_t step = 0; step < steps; ++step) {
          multiply(a0 + step * kInner, a1 + step * kInner, p_stride, values[step] + d * 2, 16 * 2, head_dim, two);
        }
        keep(c0 + d, c1 + d, head_dim, two);
      }
    });
  }

 private:
  template <typename Body>
  CORE_INLINE static void for_row_blocks(int64_t rows, const Body& body) {
    if (rows <= kRound) return body(0, rows > kRows);
    int64_t r = 0;
    for (; r + kRound <= rows; r += kRound) body(r, true);
    if (r == rows) return;
    int64_t left = rows - r;
    configure(left < kRows ? left : kRows, left > kRows ? left - kRows : kRows);
    body(r, left > kRows);
    configure(kRows, kRows);
  }

  CORE_INLINE static void clear(bool two) {
    _tile_zero(0);
    _tile_zero(1);
    if (!two) return;
    _tile_zero(2);
    _tile_zero(3);
  }

  // C += A B for one step of 32 inner elements. The second row block is optional.
  CORE_INLINE static void multiply(const bf16* a0, const bf16* a1, int64_t a_stride, const bf16* b, int64_t b_next,
                                   int64_t b_stride, bool two) {
    _tile_loadd(4, a0, a_stride * 2);
    _tile_loadd(6, b, b_stride * 4);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + b_next, b_stride * 4);
    _tile_dpbf16ps(1, 4, 7);
    if (!two) return;
    _tile_loadd(5, a1, a_stride * 2);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }

  CORE_INLINE static void fetch(const float* c0, const float* c1, int64_t stride, bool two) {
    _tile_loadd(0, c0, stride * 4);
    _tile_loadd(1, c0 + 16, stride * 4);
    if (!two) return;
    _tile_loadd(2, c1, stride * 4);
    _tile_loadd(3, c1 + 16, stride * 4);
  }

  CORE_INLINE static void keep(float* c0, float* c1, int64_t stride, bool two) {
    _tile_stored(0, c0, stride * 4);
    _tile_stored(1, c0 + 16, stride * 4);
    if (!two) return;
    _tile_stored(2, c1, stride * 4);
    _tile_stored(3, c1 + 16, stride * 4);
  }

  static void correct(float* o, const float* corrections, int64_t rows, int64_t head_dim) {
    for (int64_t r = 0; r < rows; ++r) {
      if (corrections[r] == 1.0f) continue;
      float* row = o + r * head_dim;
      for (int64_t d = 0; d < head_dim; d += kLanes) store(row + d, load(row + d) * corrections[r]);
    }
  }
};

}  // namespace
}  // namespace CORE_VARIANT
}  // namespace core
