// Kernels for int8 weights and int8 activations. Included once per instruction set, with CORE_VARIANT set.
//
// A row of activations is divided by its largest magnitude / 127 and rounded; a prepared row starts with that scale.
#include <utility>

#include "gemm/ahead.h"
#include "gemm/integers.h"
#include "gemm/kernel.h"
#include "gemm/rows.h"

namespace core {
namespace gemm {
namespace {

constexpr int kVecs = 16 / kLanes;
constexpr int64_t kHeader = 64;  // bytes before a row's values

#if defined(__AVX512F__)
constexpr int kRows = 6, kWide = 4, kTileSums = 24, kAsking = 13;
#elif defined(__AVXVNNI__)
constexpr int kRows = 6, kWide = 4, kTileSums = 6, kAsking = 7;
#elif defined(__AVX2__) || defined(__aarch64__)
constexpr int kRows = 4, kWide = 1, kTileSums = 4, kAsking = 5;
#else
constexpr int kRows = 2, kWide = 1, kTileSums = 2, kAsking = 3;
#endif
// kTileSums: rows times panels whose sums there are registers for; kAsking: see Kernel.

constexpr int kFewRows = 2;      // rows up to which a tile asks for its own weights
constexpr int64_t kLineRun = 8;  // lines between two steps of asking for the next ones

#if defined(CORE_UNSIGNED_DOTS)
// The instruction multiplies unsigned by signed: activations are stored 128 too large, and sums start 128 times the sum
// of the channel's weights too low.
constexpr int64_t kValueBytes = 1;
CORE_INLINE void put_values(vi values, char* to) { store_bytes(values ^ 0x80, to); }
CORE_INLINE vi first_sum(const char* sums) { return reinterpret_cast<vi>(load_bits(sums)) * -128; }
CORE_INLINE vi dot_line(vi sum, vu weights, const char* x) {
  uint32_t four;
  std::memcpy(&four, x, 4);
  return dot_bytes(sum, splat_bits(four), weights);
}
#elif defined(__ARM_FEATURE_DOTPROD)
constexpr int64_t kValueBytes = 1;
CORE_INLINE void put_values(vi values, char* to) { store_bytes(values, to); }
CORE_INLINE vi first_sum(const char*) { return vi{}; }
CORE_INLINE vi dot_line(vi sum, vu weights, const char* x) {
  uint32_t four;
  std::memcpy(&four, x, 4);
  return (vi)vdotq_s32((int32x4_t)sum, (int8x16_t)weights, (int8x16_t)splat_bits(four));
}
#else
// Products of pairs of 16-bit integers: activations are stored as such, in the order 0 2 1 3: shifts bring out the
// even and the odd bytes of a dword of weights.
constexpr int64_t kValueBytes = 2;
CORE_INLINE void put_values(vi values, char* to) {
  for (int i = 0; i < kLanes; i += 4) {
    const int16_t wide[4] = {static_cast<int16_t>(values[i]), static_cast<int16_t>(values[i + 2]),
                             static_cast<int16_t>(values[i + 1]), static_cast<int16_t>(values[i + 3])};
    std::memcpy(to + i * 2, wide, 8);
  }
}
CORE_INLINE vi first_sum(const char*) { return vi{}; }
CORE_INLINE vi dot_line(vi sum, vu weights, const char* x) {
  uint32_t even, odd;
  std::memcpy(&even, x, 4);
  std::memcpy(&odd, x + 4, 4);
  sum += dot_pairs(even_bytes(weights), splat_bits(even));
  return sum + dot_pairs(odd_bytes(weights), splat_bits(odd));
}
#endif

// `sums`: of the first panel's channels, those of the next are `panel_bytes` away as its weights are.
template <int M, int P>
void tile(const char* x, int64_t row_bytes, const char* w, int64_t panel_bytes, int64_t lines, const char* sums,
          const Soon& soon, float* out) {
  vi acc[M][P][kVecs];
  for (int p = 0; p < P; ++p) {
    for (int v = 0; v < kVecs; ++v) {
      for (int i = 0; i < M; ++i) acc[i][p][v] = first_sum(sums + p * panel_bytes + v * kVecBytes);
    }
  }
  const char* values = x + kHeader;
  Ahead ahead(ahead_in(P, kAhead), lines * 64, P, panel_bytes);
  constexpr bool own = M <= kFewRows;
  int64_t line = 0;
  auto until = [&](int64_t last, int64_t later) __attribute__((always_inline)) {
    for (; line < last; ++line) {
      for (int p = 0; p < P; ++p) {
        const char* at = w + p * panel_bytes + line * 64;
        if (own) ask(at + later);
        vu weights[kVecs];  // all of a line, so that no row's activations wait in a register for the next vector
        for (int v = 0; v < kVecs; ++v) weights[v] = load_bits(at + v * kVecBytes);
        for (int i = 0; i < M; ++i) {
          const char* four = values + i * row_bytes + line * 4 * kValueBytes;
          for (int v = 0; v < kVecs; ++v) acc[i][p][v] = dot_line(acc[i][p][v], weights[v], four);
        }
      }
    }
  };
  int64_t run = run_of(soon, lines, kLineRun);
  Asking asking(soon, ceil_div(lines, kLineRun));
  while (line < lines) {
    int64_t last = lines - line < run ? lines : line + run;
    asking.step();
    if (own && run == lines) until(ahead.lines_near(0, lines), ahead.distance);
    until(last, ahead.beyond);
  }
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i) {
    float scale = *reinterpret_cast<const float*>(x + i * row_bytes);
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        store(out + i * kWide * kPanel + p * kPanel + v * kLanes, __builtin_convertvector(acc[i][p][v], vf) * scale);
      }
    }
  }
}

typedef void TileOf(const char*, int64_t, const char*, int64_t, int64_t, const char*, const Soon&, float*);

struct Tiles {
  TileOf* at[kRows][kWide];
};

// Panels that `rows` rows meet at once.
constexpr int panels_for(int rows, int panels) {
  int most = kTileSums / rows;
  return panels < most ? panels : most;
}

template <size_t... I>
constexpr Tiles make_tiles(std::index_sequence<I...>) {
  Tiles tiles{};
  ((tiles.at[I / kWide][I % kWide] = &tile<I / kWide + 1, panels_for(I / kWide + 1, I % kWide + 1)>), ...);
  return tiles;
}

void run_tile(const Call& call, const Tile& where, const char*, float* out) {
  static constexpr Tiles tiles = make_tiles(std::make_index_sequence<kRows * kWide>());
  const char* x = call.rows + where.row * call.row_bytes;
  const char* w = panel_of(call, where.panel);
  int64_t lines = ceil_div(call.args->k, 4), sums = scales_at(call) + 64;
  for (int64_t p = 0, wide; p < where.panels; p += wide, w += wide * call.panel_bytes, out += wide * kPanel) {
    wide = panels_for(static_cast<int>(where.rows), static_cast<int>(where.panels - p));
    Soon soon = part_of(where.soon, p, p + wide, where.panels);
    tiles.at[where.rows - 1][wide - 1](x, call.row_bytes, w, call.panel_bytes, lines, w + sums, soon, out);
  }
}

template <typename From>
void quantize_row(const From* from, char* to, int64_t count, int64_t padded) {
  float scale = row_scale(from, count);
  Divisor by{scale, 1.0f / scale};
  std::memcpy(to, &scale, 4);
  to += kHeader;
  for (int64_t i = 0; i < padded; i += kLanes) {
    put_values(quantize_lanes(from + i, count - i, by), to + i * kValueBytes);
  }
}

void quantize_rows(const Call& call, int64_t begin, int64_t end) {
  const core_gemm_args& args = *call.args;
  for (int64_t row = begin; row < end; ++row) {
    char* to = const_cast<char*>(call.rows) + row * call.row_bytes;
    if (args.x_dtype == CORE_F32) {
      quantize_row(static_cast<const float*>(args.x) + row * args.x_stride, to, args.k, call.inputs);
    } else {
      quantize_row(static_cast<const bf16*>(args.x) + row * args.x_stride, to, args.k, call.inputs);
    }
  }
}

int64_t quantized_bytes(const core_gemm_args& args) { return kHeader + padded_inputs(args) * kValueBytes; }

}  // namespace

namespace CORE_VARIANT {
extern const Kernel w8a8_kernel;
const Kernel w8a8_kernel = {kRows,   kWide,   nullptr, quantized_bytes, quantize_rows, run_tile,
                            nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, kAsking, 0,
                            kWide == 1 ? kFewRows + 1 : kTileSums / 2 + 1};
}  // namespace CORE_VARIANT
}  // namespace gemm
}  // namespace core
