// Block formats by AMX tiles: 16 rows by 16 channels by a block of 32 inputs an instruction.
//
// A tile's sums are of one block, which has scales of its own: they leave the tile and are added up in registers, with
// the operations of the vector kernels in the same order (activations.h), so that results are the same bit for bit.
// Meanwhile other blocks are multiplied: sums are added four blocks after they were stored.
#include "gemm/activations.h"
#include "gemm/tiles.h"

namespace core {
namespace gemm {
namespace {

constexpr int kTall = 16;                          // rows of a tile
constexpr int64_t kValues = kTall * kBlock;        // bytes of a block's values: of 16 rows, or of 16 channels
constexpr int64_t kSecond = kValues + kTall * 4;   // after them 16 scales, and 16 more numbers
constexpr int64_t kBlockBytes = kSecond + kTall * 4;
constexpr int64_t kPanels = 4;                     // of a tile
constexpr int kBehind = 4;                         // blocks
constexpr int kSlots = 2 * kBehind;

// Tiles of sums, two of activations and two of weights, for `inputs` inputs.
constexpr Config config_for(int inputs) {
  Config config = {1, 0, {}, {64, 64, 64, 64, 0, 0, 64, 64}, {16, 16, 16, 16, 16, 16, 0, 0}};
  for (int i = 0; i < 2; ++i) {
    config.bytes[4 + i] = static_cast<uint16_t>(inputs);
    config.rows[6 + i] = static_cast<uint8_t>(inputs / 4);
  }
  return config;
}
constexpr Config kWhole = config_for(32), kHalf = config_for(16);

// Where a block's halves have scales of their own, each is multiplied by itself.
template <typename F>
constexpr int kParts = F::kind == Scales::halves ? 2 : 1;

template <typename F>
void enter_blocks() {
  _tile_loadconfig(kParts<F> == 2 ? &kHalf : &kWhole);
}

int64_t blocks_of(const core_gemm_args& args) { return padded_inputs(args) / kBlock; }

int64_t packed_bytes(const core_gemm_args& args) { return blocks_of(args) * (kBlockBytes / kTall); }

// A group of 16 rows has, block by block, their values, their scales and the sums of their values.
template <typename F, typename From>
void pack_row(const From* from, int64_t count, char* group, int64_t row) {
  for (int64_t i = 0; i < count; i += kBlock, group += kBlockBytes) {
    XBlock block;
    quantize_block<F>(from + i, count - i, &block);
    std::memcpy(group + row * kBlock, block.values, kBlock);
    std::memcpy(group + kValues + row * 4, &block.scale, 4);
    std::memcpy(group + kSecond + row * 4, &block.sum, 4);
  }
}

template <typename F>
void pack_rows(const Call& call, int64_t begin, int64_t end) {
  const core_gemm_args& args = *call.args;
  for (int64_t row = begin; row < end; ++row) {
    char* group = const_cast<char*>(call.rows) + row / kTall * kTall * call.row_bytes;
    if (args.x_dtype == CORE_F32) {
      pack_row<F>(static_cast<const float*>(args.x) + row * args.x_stride, args.k, group, row % kTall);
    } else {
      pack_row<F>(static_cast<const bf16*>(args.x) + row * args.x_stride, args.k, group, row % kTall);
    }
  }
  // Rows of the last tile that are not there are computed for nobody: with numbers that are no trouble.
  for (int64_t row = end; end == args.m && row % kTall != 0; ++row) {
    char* group = const_cast<char*>(call.rows) + row / kTall * kTall * call.row_bytes;
    for (int64_t block = 0; block < blocks_of(args); ++block, group += kBlockBytes) {
      std::memset(group + kValues + row % kTall * 4, 0, 4);
      std::memset(group + kSecond + row % kTall * 4, 0, 4);
    }
  }
}

int64_t spread_bytes(const core_gemm_args& args) { return kPanels * blocks_of(args) * kBlockBytes; }

// Codes of a block as the integers that they stand for, a byte each; and its scales as float32.
template <typename F>
CORE_INLINE void spread_block(const char* codes, const char* shared, int64_t place, char* to) {
  BlockScale scale = block_scale<F>(group_scale<F>(shared, 0), shared, place, 0);
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    __m512i code = (__m512i)code_line<F>(codes, g, 0);
    if (F::zero != 0) code = _mm512_sub_epi8(code, _mm512_set1_epi8(static_cast<char>(F::zero)));
    _mm512_store_si512(to + g * 64, code);
  }
  store(reinterpret_cast<float*>(to + kValues), scale.low);
  store(reinterpret_cast<float*>(to + kSecond), F::has_minimum ? scale.minimum : scale.high);
}

// Panels abreast: as many streams from memory.
template <typename F>
void spread(const Call& call, const Tile& where, char* to) {
  const char* first = panel_of(call, where.panel);
  int64_t blocks = blocks_of(*call.args), scales = scales_at(call);
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t panel = 0; panel < where.panels; ++panel) {
      const char* w = first + panel * call.panel_bytes;
      const char* codes = w + block * F::code_bytes;
      for (int64_t at = 0; at < F::code_bytes; at += 64) __builtin_prefetch(codes + kAhead + at);
      const char* shared = w + scales + block / F::group * F::scale_bytes;
      spread_block<F>(codes, shared, block % F::group, to + (panel * blocks + block) * kBlockBytes);
    }
  }
}

// Multiplies part `at` of all, whose sums go to their slot. Tile numbers are part of the instructions: literals.
#define CORE_PART(sum, a, b, at)                                                                   \
  if (at < parts) {                                                                                \
    int64_t offset = at / kParts<F> * kBlockBytes, half = at % kParts<F>;                          \
    _tile_loadd(a, x + offset + half * kInputs, kBlock);                                           \
    _tile_loadd(b, w + offset + half * kInputs * kTall, 64);                                       \
    _tile_zero(sum);                                                                               \
    _tile_dpbssd(sum, a, b);                                                                       \
    _tile_stored(sum, slots[at % kSlots], 64);                                                     \
  }

#define CORE_EACH_ROW _Pragma("GCC unroll 16") for (int i = 0; i < kTall; ++i)

template <typename F>
CORE_INLINE void add_part(vf (&total)[kTall], const char* sums, const char* x, const char* w, int64_t half) {
  auto scales = reinterpret_cast<const float*>(x + kValues);
  vf factor = load(reinterpret_cast<const float*>(w + (half == 0 ? kValues : kSecond)));
  CORE_EACH_ROW total[i] = add_sum(total[i], reinterpret_cast<vi>(load_bits(sums + i * 64)), factor, scales[i]);
  if (!F::has_minimum) return;
  vf minimum = load(reinterpret_cast<const float*>(w + kSecond));
  CORE_EACH_ROW total[i] = multiply_add(minimum, splat(scales[kTall + i]), total[i]);
}

// 16 rows by a panel.
template <typename F>
void multiply_panel(const char* x, const char* w, int64_t blocks, float* out) {
  constexpr int64_t kInputs = kBlock / kParts<F>;
  alignas(64) char slots[kSlots][kTileBytes];
  int64_t parts = blocks * kParts<F>;
  vf total[kTall];
  CORE_EACH_ROW total[i] = vf{};
  auto add = [&](int64_t part) __attribute__((always_inline)) {
    if (part < 0 || part >= parts) return;
    int64_t offset = part / kParts<F> * kBlockBytes;
    add_part<F>(total, slots[part % kSlots], x + offset, w + offset, part % kParts<F>);
  };
  for (int64_t part = 0; part < parts + kBehind; part += kBehind) {
    CORE_PART(0, 4, 6, part)
    add(part - kBehind);
    CORE_PART(1, 5, 7, (part + 1))
    add(part + 1 - kBehind);
    CORE_PART(2, 4, 6, (part + 2))
    add(part + 2 - kBehind);
    CORE_PART(3, 5, 7, (part + 3))
    add(part + 3 - kBehind);
  }
  CORE_EACH_ROW store(out + i * kPanels * kPanel, total[i]);
}

template <typename F>
void tile(const Call& call, const Tile& where, const char* scratch, float* out) {
  int64_t blocks = blocks_of(*call.args);
  for (int64_t panel = 0; panel < where.panels; ++panel, scratch += blocks * kBlockBytes) {
    multiply_panel<F>(call.rows + where.row * call.row_bytes, scratch, blocks, out + panel * kPanel);
  }
}

#undef CORE_PART
#undef CORE_EACH_ROW

template <typename F>
constexpr Kernel block_kernel() {
  return {kTall,   kPanels,   nullptr,      packed_bytes, pack_rows<F>,    tile<F>,
          nullptr, nullptr, spread_bytes, spread<F>,    enter_blocks<F>, leave};
}

}  // namespace

namespace amx {
extern const Kernel block_kernels[kBlockFormats];
const Kernel block_kernels[kBlockFormats] = CORE_BLOCK_FORMATS(block_kernel);
}  // namespace amx
}  // namespace gemm
}  // namespace core
