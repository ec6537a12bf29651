// Block formats by AMX tiles: 8 rows by 16 channels by a block of 32 inputs an instruction.
//
// A tile of activations has the low bytes of 8 rows and then their high bytes, see `Fine`, so a tile's sums are those of
// both. They are of one block, which has scales of its own: they leave the tile and are added up in registers, with the
// operations of the vector kernels in the same order (activations.h), so that results are the same bit for bit.
// Meanwhile other blocks are spread to bytes and multiplied.
#include "gemm/activations.h"
#include "gemm/tiles.h"

namespace core {
namespace gemm {
namespace {

constexpr int kGroup = 8;                           // rows of a tile
constexpr int64_t kPanels = 4;                      // panels that are spread together
constexpr int64_t kValues = 16 * kBlock;            // bytes of a block's values: of 8 rows, or of 16 channels
constexpr int64_t kXBytes = kValues + kGroup * 8;   // after them 8 scales, and 8 sums of values
constexpr int64_t kSecond = kValues + kPanel * 4;   // after channels' values 16 scales, and 16 more numbers
constexpr int64_t kWBytes = kSecond + kPanel * 4;
constexpr int64_t kOnce = 64;                       // rows up to which codes are spread for each 16 of them anew
constexpr int kSpread = 2, kAdded = 2;              // blocks between spreading and multiplying, and until sums are read
constexpr int kRing = kSpread + kAdded;             // blocks at hand

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
constexpr int kParts = F::halves ? 2 : 1;

template <typename F>
void enter_blocks() {
  _tile_loadconfig(kParts<F> == 2 ? &kHalf : &kWhole);
}

int64_t blocks_of(const core_gemm_args& args) { return padded_inputs(args) / kBlock; }

int64_t packed_bytes(const core_gemm_args& args) { return blocks_of(args) * (kXBytes / kGroup); }

// A group of 8 rows has, block by block, their values, their scales and the sums of their values.
template <typename F, typename From>
void pack_row(const From* from, int64_t count, char* group, int64_t row) {
  for (int64_t i = 0; i < count; i += kBlock, group += kXBytes) {
    Fine block;
    quantize_block<F>(from + i, count - i, &block);
    std::memcpy(group + row * kBlock, block.values, kBlock);
    std::memcpy(group + (kGroup + row) * kBlock, block.high, kBlock);
    std::memcpy(group + kValues + row * 4, &block.with.scale, 4);
    std::memcpy(group + kValues + (kGroup + row) * 4, &block.with.sum, 4);
  }
}

char* group_of(const Call& call, int64_t row) {
  return const_cast<char*>(call.rows) + row / kGroup * kGroup * call.row_bytes;
}

template <typename F>
void pack_rows(const Call& call, int64_t begin, int64_t end) {
  const core_gemm_args& args = *call.args;
  for (int64_t row = begin; row < end; ++row) {
    if (args.x_dtype == CORE_F32) {
      pack_row<F>(static_cast<const float*>(args.x) + row * args.x_stride, args.k, group_of(call, row), row % kGroup);
    } else {
      pack_row<F>(static_cast<const bf16*>(args.x) + row * args.x_stride, args.k, group_of(call, row), row % kGroup);
    }
  }
  // Rows of the last tile that are not there are computed for nobody: with numbers that are no trouble.
  for (int64_t row = end; end == args.m && row % (2 * kGroup) != 0; ++row) {
    char* group = group_of(call, row);
    for (int64_t block = 0; block < blocks_of(args); ++block, group += kXBytes) {
      std::memset(group + kValues + row % kGroup * 4, 0, 4);
      std::memset(group + kValues + (kGroup + row % kGroup) * 4, 0, 4);
    }
  }
}

int64_t spread_bytes(const core_gemm_args& args) {
  return args.m <= kOnce ? 0 : kPanels * blocks_of(args) * kWBytes;
}

// Codes of a block as the integers that they stand for, a byte each; and its scales as float32. `w`: the panel.
template <typename F>
CORE_INLINE void spread_block(const char* w, int64_t scales, int64_t block, char* to) {
  const char* codes = w + block * F::code_bytes;
  const char* shared = w + scales + block / F::group * F::scale_bytes;
#pragma GCC unroll 8
  for (int64_t at = 0; at < F::code_bytes; at += 64) __builtin_prefetch(codes + kAhead + at);
  BlockScale scale = block_scale<F>(group_scale<F>(shared, 0), shared, block % F::group, 0);
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
      spread_block<F>(first + panel * call.panel_bytes, scales, block, to + (panel * blocks + block) * kWBytes);
    }
  }
}

// A block's sums of 8 rows join their totals.
template <typename F>
CORE_INLINE void add_part(vf (&total)[kGroup], const char* sums, const char* x, const char* w, int64_t half) {
  auto scales = reinterpret_cast<const float*>(x + kValues);
  vf factor = load(reinterpret_cast<const float*>(w + (half == 0 ? kValues : kSecond)));
#pragma GCC unroll 8
  for (int i = 0; i < kGroup; ++i) {
    vi low = reinterpret_cast<vi>(load_bits(sums + i * 64));
    vi high = reinterpret_cast<vi>(load_bits(sums + (kGroup + i) * 64));
    total[i] = add_sum(total[i], (high << 8) + low, factor, scales[i]);
  }
  if (!F::has_minimum) return;
  vf minimum = load(reinterpret_cast<const float*>(w + kSecond));
#pragma GCC unroll 8
  for (int i = 0; i < kGroup; ++i) total[i] = multiply_add(minimum, splat(scales[kGroup + i]), total[i]);
}

// Tile numbers are part of the instructions: literals.
#define CORE_PRODUCTS(first, second)                                       \
  _tile_loadd(4, a, kBlock);                                               \
  _tile_loadd(6, b, 64);                                                   \
  _tile_zero(first);                                                       \
  _tile_dpbssd(first, 4, 6);                                               \
  if (Groups == 2) _tile_loadd(5, a + group_bytes, kBlock);                \
  if (Groups == 1) _tile_loadd(7, b_next, 64);                             \
  _tile_zero(second);                                                      \
  if (Groups == 2) {                                                       \
    _tile_dpbssd(second, 5, 6);                                            \
  } else {                                                                 \
    _tile_dpbssd(second, 4, 7);                                            \
  }                                                                        \
  _tile_stored(first, to, 64);                                             \
  _tile_stored(second, to + kTileBytes, 64);

// 16 rows by a panel, or 8 rows by two panels: the first at `w`, the second `panel_bytes` further. `Ready`: they have been
// spread. Results are `out_next` floats apart from one to the other.
template <typename F, int Groups, bool Ready>
void multiply_pair(const char* x, int64_t group_bytes, const char* w, int64_t panel_bytes, int64_t scales,
                   int64_t blocks, float* out, int64_t out_next) {
  constexpr int kPair = Groups == 1 ? 2 : 1;
  constexpr int64_t kInputs = kBlock / kParts<F>;
  alignas(64) char codes[Ready ? 1 : kRing][kPair][kWBytes];
  alignas(64) char sums[kRing][kParts<F>][2][kTileBytes];
  vf total[2][kGroup];
#pragma GCC unroll 8
  for (int i = 0; i < kGroup; ++i) total[0][i] = total[1][i] = vf{};
  auto ready = [&](int64_t block, int panel) -> const char* {
    if (Ready) return w + panel * panel_bytes + block * kWBytes;
    return codes[block % kRing][panel];
  };
  for (int64_t step = 0; step < blocks + kSpread + kAdded; ++step) {
    int64_t block = step - kSpread;
    if (block >= 0 && block < blocks) {
#pragma GCC unroll 2
      for (int half = 0; half < kParts<F>; ++half) {
        const char* a = x + block * kXBytes + half * kInputs;
        const char* b = ready(block, 0) + half * kInputs * kPanel;
        const char* b_next = ready(block, kPair - 1) + half * kInputs * kPanel;
        (void)b_next;
        char* to = sums[block % kRing][half][0];
        if ((block + half) % 2 == 0) {
          CORE_PRODUCTS(0, 1)
        } else {
          CORE_PRODUCTS(2, 3)
        }
      }
    }
    block -= kAdded;
    if (block >= 0) {
#pragma GCC unroll 2
      for (int half = 0; half < kParts<F>; ++half) {
        const char* from = sums[block % kRing][half][0];
        const char* at = x + block * kXBytes;
        add_part<F>(total[0], from, at, ready(block, 0), half);
        add_part<F>(total[1], from + kTileBytes, Groups == 2 ? at + group_bytes : at, ready(block, kPair - 1), half);
      }
    }
    // In the place of the block whose sums have just been added.
    if (!Ready && step < blocks) {
#pragma GCC unroll 2
      for (int panel = 0; panel < kPair; ++panel) {
        spread_block<F>(w + panel * panel_bytes, scales, step, codes[step % kRing][panel]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kGroup; ++i) {
    store(out + i * kPanels * kPanel, total[0][i]);
    store(out + i * kPanels * kPanel + out_next, total[1][i]);
  }
}

template <typename F, bool Ready>
void multiply_tile(const Call& call, const Tile& where, const char* w, int64_t panel_bytes, float* out) {
  const char* x = call.rows + where.row * call.row_bytes;
  int64_t blocks = blocks_of(*call.args), scales = scales_at(call), group_bytes = kGroup * call.row_bytes;
  if (where.rows > kGroup) {
    for (int64_t panel = 0; panel < where.panels; ++panel, w += panel_bytes, out += kPanel) {
      multiply_pair<F, 2, Ready>(x, group_bytes, w, panel_bytes, scales, blocks, out, kGroup * kPanels * kPanel);
    }
    return;
  }
  for (int64_t panel = 0; panel < where.panels; panel += 2, w += 2 * panel_bytes, out += 2 * kPanel) {
    // A panel that is not there is computed as the one before it, for nobody.
    int64_t next = panel + 1 < where.panels ? panel_bytes : 0;
    multiply_pair<F, 1, Ready>(x, group_bytes, w, next, scales, blocks, out, kPanel);
  }
}

template <typename F>
void tile(const Call& call, const Tile& where, const char* scratch, float* out) {
  if (scratch != nullptr) {
    multiply_tile<F, true>(call, where, scratch, blocks_of(*call.args) * kWBytes, out);
  } else {
    multiply_tile<F, false>(call, where, panel_of(call, where.panel), call.panel_bytes, out);
  }
}

#undef CORE_PRODUCTS

template <typename F>
constexpr Kernel block_kernel() {
  return {2 * kGroup, kPanels, nullptr,      packed_bytes, pack_rows<F>,    tile<F>,
          nullptr,    nullptr, spread_bytes, spread<F>,    enter_blocks<F>, leave};
}

}  // namespace

namespace amx {
extern const Kernel fine_block_kernels[kBlockFormats];
const Kernel fine_block_kernels[kBlockFormats] = CORE_BLOCK_FORMATS(block_kernel);
}  // namespace amx
}  // namespace gemm
}  // namespace core
