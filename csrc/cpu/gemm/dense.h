// Kernels that multiply in floating point. Included once per instruction set, with CORE_VARIANT set.
//
// A tile is M rows by P panels. Its accumulators stay in registers while the inputs run past, one line (64 bytes) of
// every panel at a time; each line meets all M rows.
#include <utility>

#include "gemm/float8.h"
#include "gemm/kernel.h"
#include "gemm/rows.h"
#if defined(__AVX512BF16__)
#include "gemm/expand.h"
#endif

namespace core {
namespace gemm {
namespace {

constexpr int kVecs = 16 / kLanes;  // vectors of a line

#if defined(__AVX512F__)
constexpr int kRows = 6, kWide = 4;
#elif defined(__AVX2__) || defined(__aarch64__)
constexpr int kRows = 6, kWide = 1;
#else
constexpr int kRows = 2, kWide = 1;
#endif

constexpr int kAhead = 1024;  // bytes ahead of its use that a line of one or two rows is asked for

// float32: a line is one input.
struct F32 {
  typedef float X;
  static constexpr int inputs = 1, rows = kRows, panels = kWide;
  static constexpr bool round = false;
  static constexpr float scale = 1.0f;
  template <int M>
  CORE_INLINE static void line(vf (*acc)[kVecs], int64_t next, const char* w, const char* x, int64_t row_bytes) {
    for (int v = 0; v < kVecs; ++v) {
      vf weight = load(reinterpret_cast<const float*>(w) + v * kLanes);
      for (int i = 0; i < M; ++i) acc[i * next][v] += weight * *reinterpret_cast<const float*>(x + i * row_bytes);
    }
  }
};

// bfloat16 widened to float32: a line is two inputs, the first in the low halves.
struct WideBf16 {
  typedef float X;
  static constexpr int inputs = 2, rows = kRows, panels = kWide;
  static constexpr bool round = true;
  static constexpr float scale = 1.0f;
  template <int M>
  CORE_INLINE static void line(vf (*acc)[kVecs], int64_t next, const char* w, const char* x, int64_t row_bytes) {
    for (int v = 0; v < kVecs; ++v) {
      vu both = load_bits(w + v * kVecBytes);
      vf even = as_float(both << 16), odd = as_float(both & 0xffff0000u);
      for (int i = 0; i < M; ++i) {
        const float* pair = reinterpret_cast<const float*>(x + i * row_bytes);
        acc[i * next][v] += even * pair[0];
        acc[i * next][v] += odd * pair[1];
      }
    }
  }
};

// int8 widened to float32: a line is four inputs. Each byte is moved to the top of its dword, which makes it 2^24 times
// too large; the result is divided by that.
struct WideInt8 {
  typedef float X;
  static constexpr int inputs = 4, rows = kRows, panels = kWide > 2 ? 2 : kWide;
  static constexpr bool round = false;
  static constexpr float scale = 1.0f / 16777216.0f;
  template <int M>
  CORE_INLINE static void line(vf (*acc)[kVecs], int64_t next, const char* w, const char* x, int64_t row_bytes) {
    for (int v = 0; v < kVecs; ++v) {
      vu all = load_bits(w + v * kVecBytes);
      for (int j = 0; j < 4; ++j) {
        vu top = j == 3 ? all & 0xff000000u : (all << (24 - 8 * j)) & 0xff000000u;
        vf weight = __builtin_convertvector(reinterpret_cast<vi>(top), vf);
        for (int i = 0; i < M; ++i) acc[i * next][v] += weight * reinterpret_cast<const float*>(x + i * row_bytes)[j];
      }
    }
  }
};

// float8 widened to float32: a line is four inputs.
struct WideE4m3 {
  typedef float X;
  static constexpr int inputs = 4, rows = kRows, panels = kWide > 2 ? 2 : kWide;
  static constexpr bool round = false;
  static constexpr float scale = 1.0f;
  template <int M>
  CORE_INLINE static void line(vf (*acc)[kVecs], int64_t next, const char* w, const char* x, int64_t row_bytes) {
    for (int v = 0; v < kVecs; ++v) {
      vu codes = load_bits(w + v * kVecBytes);
      if (all_normal(codes)) {
        add<true, M>(acc, next, v, codes, x, row_bytes);
      } else {
        add<false, M>(acc, next, v, codes, x, row_bytes);
      }
    }
  }
  template <bool Normal, int M>
  CORE_INLINE static void add(vf (*acc)[kVecs], int64_t next, int v, vu codes, const char* x, int64_t row_bytes) {
    for (int j = 0; j < 4; ++j) {
      vf weight = widen_byte<Normal>(codes, j);
      for (int i = 0; i < M; ++i) {
        acc[i * next][v] += weight * reinterpret_cast<const float*>(x + i * row_bytes)[kInputAt[j]];
      }
    }
  }
};

#if defined(__AVX512BF16__)
CORE_INLINE void add_pairs(vf& acc, __m512bh weights, const char* x) {
  int32_t pair;
  std::memcpy(&pair, x, 4);
  acc = (vf)_mm512_dpbf16_ps((__m512)acc, (__m512bh)_mm512_set1_epi32(pair), weights);
}

// bfloat16 by the instruction for it.
struct Bf16 {
  typedef bf16 X;
  static constexpr int inputs = 2, rows = kRows, panels = kWide;
  static constexpr bool round = false;
  static constexpr float scale = 1.0f;
  template <int M>
  CORE_INLINE static void line(vf (*acc)[kVecs], int64_t next, const char* w, const char* x, int64_t row_bytes) {
    __m512bh weight = (__m512bh)_mm512_loadu_si512(w);
    for (int i = 0; i < M; ++i) add_pairs(acc[i * next][0], weight, x + i * row_bytes);
  }
};

// float8 widened to bfloat16: a line is two of that.
struct Bf16E4m3 {
  typedef bf16 X;
  static constexpr int inputs = 4, rows = kRows, panels = kWide;
  static constexpr bool round = false;
  static constexpr float scale = 1.0f;
  template <int M>
  CORE_INLINE static void line(vf (*acc)[kVecs], int64_t next, const char* w, const char* x, int64_t row_bytes) {
    PairsOf pairs = widen_pairs(load_bits(w));
    for (int i = 0; i < M; ++i) add_pairs(acc[i * next][0], (__m512bh)pairs.first, x + i * row_bytes);
    for (int i = 0; i < M; ++i) add_pairs(acc[i * next][0], (__m512bh)pairs.second, x + i * row_bytes + 4);
  }
};
#endif

// One accumulator per result would wait for itself: few results get two, for even and odd lines.
template <typename F, int M, int P>
void tile(const char* x, int64_t row_bytes, const char* w, int64_t panel_bytes, int64_t lines, float* out) {
  constexpr int kTwice = M * P * kVecs <= 8 ? 2 : 1;
  constexpr int64_t x_bytes = F::inputs * static_cast<int64_t>(sizeof(typename F::X));
  vf acc[kTwice][M][P][kVecs] = {};
  int64_t line = 0;
  for (; line + kTwice <= lines; line += kTwice) {
    for (int t = 0; t < kTwice; ++t) {
      for (int p = 0; p < P; ++p) {
        const char* at = w + p * panel_bytes + (line + t) * 64;
        if (M <= 2) __builtin_prefetch(at + kAhead);
        F::template line<M>(&acc[t][0][p], P, at, x + (line + t) * x_bytes, row_bytes);
      }
    }
  }
  if (line < lines) {
    for (int p = 0; p < P; ++p) {
      F::template line<M>(&acc[0][0][p], P, w + p * panel_bytes + line * 64, x + line * x_bytes, row_bytes);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        vf total = acc[0][i][p][v];
        if (kTwice == 2) total = total + acc[kTwice - 1][i][p][v];
        store(out + i * F::panels * kPanel + p * kPanel + v * kLanes, total * F::scale);
      }
    }
  }
}

typedef void TileOf(const char*, int64_t, const char*, int64_t, int64_t, float*);

template <typename F>
struct Tiles {
  TileOf* at[F::rows][F::panels];
};

template <typename F, size_t... I>
constexpr Tiles<F> make_tiles(std::index_sequence<I...>) {
  Tiles<F> tiles{};
  ((tiles.at[I / F::panels][I % F::panels] = &tile<F, I / F::panels + 1, I % F::panels + 1>), ...);
  return tiles;
}

template <typename F>
TileOf* tile_of(const Tile& where) {
  static constexpr Tiles<F> tiles = make_tiles<F>(std::make_index_sequence<F::rows * F::panels>());
  return tiles.at[where.rows - 1][where.panels - 1];
}

template <typename F>
void run_tile(const Call& call, const Tile& where, const char* scratch, float* out) {
  int64_t panel_bytes = scratch != nullptr ? call.inputs / F::inputs * 64 : call.panel_bytes;
  const char* w = scratch != nullptr ? scratch : panel_of(call, where.panel);
  tile_of<F>(where)(call.rows + where.row * call.row_bytes, call.row_bytes, w, panel_bytes,
                    ceil_div(call.args->k, F::inputs), out);
}

// The same where `blocks` times 32 inputs have scales of their own: their sums are multiplied before they are added up.
template <typename F, int64_t blocks>
void run_groups(const Call& call, const Tile& where, const char*, float* out) {
  constexpr int64_t kLines = blocks * kBlock / F::inputs, kXBytes = F::inputs * sizeof(typename F::X);
  alignas(64) float part[F::rows * F::panels * kPanel];
  TileOf* compute = tile_of<F>(where);
  int64_t lines = ceil_div(call.args->k, F::inputs);
  const char *x = call.rows + where.row * call.row_bytes, *w = panel_of(call, where.panel);
  const char* scales = w + scales_at(call);
  for (int64_t line = 0; line < lines; line += kLines, scales += kPanel * 4) {
    int64_t here = lines - line < kLines ? lines - line : kLines;
    compute(x + line * kXBytes, call.row_bytes, w + line * 64, call.panel_bytes, here, part);
    for (int64_t p = 0; p < where.panels; ++p) {
      for (int v = 0; v < kVecs; ++v) {
        vf scale = load(reinterpret_cast<const float*>(scales + p * call.panel_bytes) + v * kLanes);
        for (int64_t i = 0, at = p * kPanel + v * kLanes; i < where.rows; ++i, at += F::panels * kPanel) {
          vf before = line == 0 ? vf{} : load(out + at);
          store(out + at, multiply_add(load(part + at), scale, before));
        }
      }
    }
  }
}

template <typename F>
constexpr Kernel dense_kernel() {
  typedef typename F::X X;
  return {F::rows,      F::panels, usable<X, F::inputs>, converted_bytes<X>, convert_rows<X, F::round>,
          run_tile<F>, nullptr,   nullptr,   nullptr,   nullptr,              nullptr,            nullptr};
}

// Rounding to bf16 must also meet activations that are float32 already.
template <>
constexpr Kernel dense_kernel<WideBf16>() {
  return {WideBf16::rows,     WideBf16::panels, nullptr, converted_bytes<float>, convert_rows<float, true>,
          run_tile<WideBf16>, nullptr,          nullptr, nullptr, nullptr, nullptr,                nullptr};
}

// The kernel of `F`, whose tiles are computed by `run`.
template <typename F>
constexpr Kernel float_kernel(void (*run)(const Call&, const Tile&, const char*, float*)) {
  Kernel kernel = dense_kernel<F>();
  kernel.tile = run;
  return kernel;
}

#define CORE_FLOAT_KERNELS(F) {dense_kernel<F>(), float_kernel<F>(run_groups<F, 4>), float_kernel<F>(run_groups<F, 1>)}

#if defined(__AVX512BF16__)
// Many rows: panels are widened to bf16 once for all of them.
constexpr Kernel widened(void (*expand)(const Call&, const Tile&, char*)) {
  return {Bf16::rows,     Bf16::panels, usable<bf16, Bf16::inputs>, converted_bytes<bf16>, convert_rows<bf16, false>,
          run_tile<Bf16>, nullptr,      nullptr,                    expanded_bytes<kWide>, expand,
          nullptr,        nullptr};
}
#endif

}  // namespace

namespace CORE_VARIANT {
#if defined(__AVX512BF16__)
extern const Kernel bf16_kernel, w8a16_kernel;
const Kernel bf16_kernel = dense_kernel<Bf16>();
// int8 is exact in bf16.
const Kernel w8a16_kernel = widened(expand_int8);
extern const Kernel e4m3_kernels[kFloatFormats], wide_e4m3_kernels[kFloatFormats];
const Kernel e4m3_kernels[kFloatFormats] = CORE_FLOAT_KERNELS(Bf16E4m3);
const Kernel wide_e4m3_kernels[kFloatFormats] = {widened(expand_e4m3), widened(expand_groups<4>),
                                                 widened(expand_groups<1>)};
#else
extern const Kernel f32_kernel, bf16_kernel, w8a16_kernel;
const Kernel f32_kernel = dense_kernel<F32>();
const Kernel bf16_kernel = dense_kernel<WideBf16>();
const Kernel w8a16_kernel = dense_kernel<WideInt8>();
extern const Kernel e4m3_kernels[kFloatFormats];
const Kernel e4m3_kernels[kFloatFormats] = CORE_FLOAT_KERNELS(WideE4m3);
#endif
}  // namespace CORE_VARIANT
}  // namespace gemm
}  // namespace core
