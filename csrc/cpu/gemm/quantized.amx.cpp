// GGUF's block formats by AMX tiles, for many rows: integers as in quantized.h, a tile for 16 rows of one block.
//
// A panel's codes become signed bytes and its scales float32 once, for all rows (`expand`). A block fills half a tile,
// and its sums leave the tile to be scaled; that is still faster than vectors.
#include "gemm/blocks.h"
#include "gemm/integers.h"
#include "gemm/tiles.h"

namespace core {
namespace gemm {
namespace {

constexpr int64_t kRows = 16, kPanels = 2;
constexpr int64_t kBatch = 4;  // blocks whose sums are in tiles at once

// 16 rows of a block of activations.
struct XTile {
  int8_t values[kRows][kBlock];
  float scale[kRows];
  float sum[kRows];  // of the values, times the scale
};
static_assert(sizeof(XTile) == kRows * 40, "quantized_bytes counts on it");

// One block of a panel.
struct WTile {
  int8_t values[8][64];
  float scale[2][16];  // of either half, where they differ
  float minimum[16];
};

int64_t quantized_bytes(const core_gemm_args& args) { return padded_inputs(args) / kBlock * 40; }

template <typename From>
void quantize_row(const From* from, int64_t count, XTile* to, int64_t row) {
  for (; count > 0; from += kBlock, count -= kBlock, ++to) {
    float scale = row_scale(from, count < kBlock ? count : kBlock);
    Divisor by{scale, 1.0f / scale};
    vi low = quantize_lanes(from, count, by), high = quantize_lanes(from + kLanes, count - kLanes, by);
    store_bytes(low, to->values[row]);
    store_bytes(high, to->values[row] + kLanes);
    to->scale[row] = scale;
    to->sum[row] = scale * static_cast<float>(_mm512_reduce_add_epi32((__m512i)(low + high)));
  }
}

void quantize_rows(const Call& call, int64_t begin, int64_t end) {
  const core_gemm_args& args = *call.args;
  for (int64_t row = begin; row < end; ++row) {
    char* group = const_cast<char*>(call.rows) + row / kRows * kRows * call.row_bytes;
    XTile* to = reinterpret_cast<XTile*>(group);
    if (args.x_dtype == CORE_F32) {
      quantize_row(static_cast<const float*>(args.x) + row * args.x_stride, args.k, to, row % kRows);
    } else {
      quantize_row(static_cast<const bf16*>(args.x) + row * args.x_stride, args.k, to, row % kRows);
    }
  }
}

int64_t expanded_bytes(const core_gemm_args& args) {
  return kPanels * padded_inputs(args) / kBlock * static_cast<int64_t>(sizeof(WTile));
}

template <typename F>
void expand(const Call& call, const Tile& where, char* scratch) {
  int64_t blocks = call.inputs / kBlock;
  const char* codes = static_cast<const char*>(call.args->w) + where.panel * blocks * F::code_bytes;
  const char* scales = static_cast<const char*>(call.args->scales) + where.panel * (blocks / F::group) * F::scale_bytes;
  WTile* to = reinterpret_cast<WTile*>(scratch);
  for (int64_t block = 0; block < where.panels * blocks; ++block, codes += F::code_bytes, ++to) {
    const char* shared = scales + block / F::group * F::scale_bytes;
    BlockScale scale = block_scale<F>(group_scale<F>(shared, 0), shared, block % F::group, 0);
    store(to->scale[0], scale.low);
    store(to->scale[1], scale.high);
    store(to->minimum, scale.minimum);
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      __m512i zero = _mm512_set1_epi8(static_cast<char>(F::zero));
      _mm512_storeu_si512(to->values[g], _mm512_sub_epi8((__m512i)code_line<F>(codes, g, 0), zero));
    }
  }
}

// Tiles 0-3 are sums, 4 and 5 activations, 6 and 7 weights; of half a block where halves have scales of their own.
constexpr Config config(uint16_t inputs) {
  uint8_t lines = static_cast<uint8_t>(inputs / 4);
  return {1, 0, {}, {64, 64, 64, 64, inputs, inputs, 64, 64}, {16, 16, 16, 16, 16, 16, lines, lines}};
}
constexpr Config kWhole = config(32), kHalf = config(16);

template <typename F>
void enter() {
  if (F::kind == Scales::halves) {
    _tile_loadconfig(&kHalf);
  } else {
    _tile_loadconfig(&kWhole);
  }
}

#define CORE_SUM(sum, x_tile, w_tile)                        \
  if (count > sum) {                                         \
    _tile_zero(sum);                                         \
    _tile_loadd(x_tile, x[sum].values[0] + half * 16, 32);   \
    _tile_loadd(w_tile, w[sum].values[half * 4], 64);        \
    _tile_dpbssd(sum, x_tile, w_tile);                       \
  }

// The integer sums of up to four blocks, or of one half of each, in tiles.
inline void sum_blocks(const XTile* x, const WTile* w, int64_t count, int half) {
  CORE_SUM(0, 4, 6)
  CORE_SUM(1, 5, 7)
  CORE_SUM(2, 4, 6)
  CORE_SUM(3, 5, 7)
}

#undef CORE_SUM

inline void store_sums(int32_t (*sums)[256]) {
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[1], 64);
  _tile_stored(2, sums[2], 64);
  _tile_stored(3, sums[3], 64);
}

template <typename F, int R>
CORE_INLINE void scale_sums(vf* acc, const int32_t (*sums)[256], const XTile* x, const WTile* w, int64_t count,
                            int half) {
  for (int64_t at = 0; at < count; ++at) {
    vf scale = load(w[at].scale[half]), minimum = load(w[at].minimum);
#pragma GCC unroll 16
    for (int row = 0; row < R; ++row) {
      vf sum = __builtin_convertvector(reinterpret_cast<vi>(load_bits(sums[at] + row * 16)), vf);
      acc[row] += sum * (scale * x[at].scale[row]);
      if (half == 0 && (F::kind == Scales::minimum || F::kind == Scales::nested)) acc[row] += minimum * x[at].sum[row];
    }
  }
}

// R rows by one panel. The sums of a batch are made while those of the one before are scaled, and leave their tiles
// only then: a store that waits for its tile holds up what comes after it.
template <typename F, int R>
void column(const XTile* x, const WTile* w, int64_t blocks, float* out) {
  constexpr int halves = F::kind == Scales::halves ? 2 : 1;
  alignas(64) int32_t sums[kBatch][256];
  vf acc[R] = {};
  int64_t steps = ceil_div(blocks, kBatch) * halves;
  auto count_at = [&](int64_t step) {
    int64_t left = blocks - step / halves * kBatch;
    return left < kBatch ? left : kBatch;
  };
  if (steps > 0) sum_blocks(x, w, count_at(0), 0);
  for (int64_t step = 0; step < steps; ++step) {
    store_sums(sums);
    int64_t next = step + 1, at = step / halves * kBatch, after = next / halves * kBatch;
    if (next < steps) sum_blocks(x + after, w + after, count_at(next), static_cast<int>(next % halves));
    scale_sums<F, R>(acc, sums, x + at, w + at, count_at(step), static_cast<int>(step % halves));
  }
#pragma GCC unroll 16
  for (int row = 0; row < R; ++row) store(out + row * kPanels * kPanel, acc[row]);
}

template <typename F>
void tile(const Call& call, const Tile& where, const char* scratch, float* out) {
  int64_t blocks = call.inputs / kBlock;
  const XTile* x = reinterpret_cast<const XTile*>(call.rows + where.row * call.row_bytes);
  const WTile* w = reinterpret_cast<const WTile*>(scratch);
  for (int64_t panel = 0; panel < where.panels; ++panel, w += blocks, out += kPanel) {
    if (where.rows > 8) {
      column<F, 16>(x, w, blocks, out);
    } else {
      column<F, 8>(x, w, blocks, out);
    }
  }
}

template <typename F>
constexpr Kernel block_kernel() {
  return {kRows,          kPanels,   nullptr,  quantized_bytes, quantize_rows, tile<F>,
          expanded_bytes, expand<F>, enter<F>, leave};
}

}  // namespace

namespace amx {
extern const Kernel block_kernels[8];
const Kernel block_kernels[8] = {block_kernel<Q4_0>(), block_kernel<Q4_1>(), block_kernel<Q5_0>(),
                                 block_kernel<Q5_1>(), block_kernel<Q8_0>(), block_kernel<Q4_K>(),
                                 block_kernel<Q5_K>(), block_kernel<Q6_K>()};
}  // namespace amx
}  // namespace gemm
}  // namespace core
