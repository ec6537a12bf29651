// GGUF's blocks: codes and scales as files have them, into panels (gemm/blocks.h says what those consist of).
#include "gemm/gemm.h"
#include "gemm/kernel.h"
#include "pack/lines.h"
#include "pack/pack.h"

namespace core {
namespace pack {
namespace {

// Low halves of `count` bytes, then high halves.
inline void halves(const uint8_t* from, int64_t count, uint8_t* codes) {
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = from[i] & 15;
    codes[count + i] = from[i] >> 4;
  }
}

// Adds `bits` of each of 32 bytes, from `first` on, to as many codes, above their lower four bits.
template <int bits>
inline void add_high(const uint8_t* from, int first, uint8_t* codes) {
  constexpr uint64_t mask = kEachByte * ((1 << bits) - 1);
  for (int i = 0; i < 32; i += 8) {
    uint64_t word = load_word(codes + i) | (load_word(from + i) >> first & mask) << 4;
    std::memcpy(codes + i, &word, 8);
  }
}

// Each format: bits of a code, bytes and values of a (super-)block in the file, how its codes are read, and how one
// row's scales are put into its column of the panel's: a float16 for each row takes 32 bytes, a byte 16.

template <int numbers>  // float16s in front of the codes
struct FourBits {
  static constexpr int bits = 4;
  static constexpr int64_t values = 32, stored = 2 * numbers + 16;
  static void codes(const uint8_t* block, uint8_t* codes) { halves(block + 2 * numbers, 16, codes); }
  static void scales(const uint8_t* block, int64_t row, char* to) {
    for (int i = 0; i < numbers; ++i) std::memcpy(to + i * 32 + row * 2, block + i * 2, 2);
  }
};

template <int numbers>
struct FiveBits {
  static constexpr int bits = 5;
  static constexpr int64_t values = 32, stored = 2 * numbers + 20;
  static void codes(const uint8_t* block, uint8_t* codes) {
    halves(block + 2 * numbers + 4, 16, codes);
    for (int i = 0; i < 4; ++i) {
      // A byte of `own` is not 0 where its bit is set; then it reaches 128 with 127 added.
      constexpr uint64_t kBits = 0x8040201008040201u;
      uint64_t own = block[2 * numbers + i] * kEachByte & kBits;
      uint64_t word = load_word(codes + i * 8) | ((own + 127 * kEachByte) >> 7 & kEachByte) << 4;
      std::memcpy(codes + i * 8, &word, 8);
    }
  }
  static void scales(const uint8_t* block, int64_t row, char* to) { FourBits<numbers>::scales(block, row, to); }
};

struct EightBits {
  static constexpr int bits = 8;
  static constexpr int64_t values = 32, stored = 34;
  static void codes(const uint8_t* block, uint8_t* codes) {
    for (int i = 0; i < 32; ++i) codes[i] = block[2 + i] ^ 128;
  }
  static void scales(const uint8_t* block, int64_t row, char* to) { FourBits<1>::scales(block, row, to); }
};

// Of Q4_K and Q5_K: two float16, then 6-bit scales and minima of eight blocks in twelve bytes.
inline void nested_scales(const uint8_t* block, int64_t row, char* to) {
  FourBits<2>::scales(block, row, to);
  const uint8_t *scale = block + 4, *minimum = block + 8, *rest = block + 12;
  for (int i = 0; i < 4; ++i) {
    char* early = to + 64 + i * 32 + row;
    char* late = to + 64 + (4 + i) * 32 + row;
    early[0] = static_cast<char>(scale[i] & 63);
    early[16] = static_cast<char>(minimum[i] & 63);
    late[0] = static_cast<char>((rest[i] & 15) | (scale[i] >> 2 & 48));
    late[16] = static_cast<char>(rest[i] >> 4 | (minimum[i] >> 2 & 48));
  }
}

// Sixteen scales of 6 bits, from -32 on: the lower four of the first eight and of the others in eight bytes, the upper
// two in four.
struct Q3K {
  static constexpr int bits = 3;
  static constexpr int64_t values = 256, stored = 110;
  static void codes(const uint8_t* block, uint8_t* codes) {
    // Four blocks share the bytes of their low bits, all eight those of their third bits.
    for (int i = 0; i < 256; i += 8) {
      uint64_t low = load_word(block + 32 + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & kEachByte * 3;
      uint64_t third = load_word(block + i % 32) >> (i / 32) & kEachByte;
      uint64_t word = low | third << 2;
      std::memcpy(codes + i, &word, 8);
    }
  }
  static void scales(const uint8_t* block, int64_t row, char* to) {
    const uint8_t* packed = block + 96;
    std::memcpy(to + row * 2, block + 108, 2);
    for (int i = 0; i < 16; ++i) {
      int low = packed[i % 8] >> (i / 8 * 4) & 15, high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
      to[32 + i * 16 + row] = static_cast<char>((high << 4 | low) - 32);
    }
  }
};

struct Q4K {
  static constexpr int bits = 4;
  static constexpr int64_t values = 256, stored = 144;
  static void codes(const uint8_t* block, uint8_t* codes) {
    for (int pair = 0; pair < 4; ++pair) halves(block + 16 + pair * 32, 32, codes + pair * 64);
  }
  static void scales(const uint8_t* block, int64_t row, char* to) { nested_scales(block, row, to); }
};

struct Q5K {
  static constexpr int bits = 5;
  static constexpr int64_t values = 256, stored = 176;
  static void codes(const uint8_t* block, uint8_t* codes) {
    for (int pair = 0; pair < 4; ++pair) halves(block + 48 + pair * 32, 32, codes + pair * 64);
    for (int i = 0; i < 8; ++i) add_high<1>(block + 16, i, codes + i * 32);
  }
  static void scales(const uint8_t* block, int64_t row, char* to) { nested_scales(block, row, to); }
};

struct Q6K {
  static constexpr int bits = 6;
  static constexpr int64_t values = 256, stored = 210;
  static void codes(const uint8_t* block, uint8_t* codes) {
    for (int half = 0; half < 2; ++half) {
      uint8_t* to = codes + half * 128;
      halves(block + half * 64, 64, to);
      for (int i = 0; i < 4; ++i) add_high<2>(block + 128 + half * 32, i * 2, to + i * 32);
    }
  }
  static void scales(const uint8_t* block, int64_t row, char* to) {
    std::memcpy(to + row * 2, block + 208, 2);
    for (int i = 0; i < 16; ++i) to[32 + i * 16 + row] = static_cast<char>(block[192 + i]);
  }
};

struct Iq4Xs {
  static constexpr int bits = 4;
  static constexpr int64_t values = 256, stored = 136;
  static void codes(const uint8_t* block, uint8_t* codes) {
    for (int i = 0; i < 8; ++i) halves(block + 8 + i * 16, 16, codes + i * 32);
  }
  // A float16, then eight scales of 6 bits, from -32 on: their upper two together, the lower four behind.
  static void scales(const uint8_t* block, int64_t row, char* to) {
    std::memcpy(to + row * 2, block, 2);
    for (int i = 0; i < 8; ++i) {
      int low = block[4 + i / 2] >> (i % 2 * 4) & 15, high = block[2 + i / 4] >> (i % 4 * 2) & 3;
      to[32 + i * 16 + row] = static_cast<char>((high << 4 | low) - 32);
    }
  }
};

struct Mxfp4 {
  static constexpr int bits = 4;
  static constexpr int64_t values = 32, stored = 17;
  static void codes(const uint8_t* block, uint8_t* codes) { halves(block + 1, 16, codes); }
  // Kernels multiply with twice what codes stand for: half the scale, whose exponent is a byte.
  static void scales(const uint8_t* block, int64_t row, char* to) {
    to[row] = static_cast<char>(block[0] == 0 ? 0 : block[0] - 1);
  }
};

template <typename F>
void pack_panel(const core_pack_args& args, int64_t panel) {
  constexpr int64_t kBlocks = F::values / kInputs;  // of a super-block
  const gemm::Storage& storage = gemm::kStorage[args.format];
  char* lines = static_cast<char*>(args.to) + panel * args.panel_bytes;
  char *scales = lines + gemm::line_bytes(args.format, args.k), *end = lines + args.panel_bytes;
  int64_t first = panel * kRows, rows = args.n - first < kRows ? args.n - first : kRows;
  std::memset(scales, 0, static_cast<size_t>(end - scales));
  uint8_t codes[kRows * F::values] = {};
  for (int64_t at = 0; at < args.k / F::values; ++at, scales += storage.scales) {
    for (int64_t row = 0; row < rows; ++row) {
      auto block = static_cast<const uint8_t*>(args.from) + (first + row) * args.row_bytes + at * F::stored;
      F::codes(block, codes + row * F::values);
      F::scales(block, row, scales);
    }
    for (int64_t i = 0; i < kBlocks; ++i) lines += store_block<F::bits>(codes + i * kInputs, F::values, lines);
  }
}

typedef void PackPanel(const core_pack_args&, int64_t);

PackPanel* panel_packer(int64_t format) {
  switch (format) {
    case CORE_GEMM_Q4_0:
    case CORE_GEMM_IQ4_NL:
      return &pack_panel<FourBits<1>>;
    case CORE_GEMM_Q4_1:
      return &pack_panel<FourBits<2>>;
    case CORE_GEMM_Q5_0:
      return &pack_panel<FiveBits<1>>;
    case CORE_GEMM_Q5_1:
      return &pack_panel<FiveBits<2>>;
    case CORE_GEMM_Q8_0:
      return &pack_panel<EightBits>;
    case CORE_GEMM_Q4_K:
      return &pack_panel<Q4K>;
    case CORE_GEMM_Q5_K:
      return &pack_panel<Q5K>;
    case CORE_GEMM_Q6_K:
      return &pack_panel<Q6K>;
    case CORE_GEMM_MXFP4:
      return &pack_panel<Mxfp4>;
    case CORE_GEMM_IQ4_XS:
      return &pack_panel<Iq4Xs>;
    case CORE_GEMM_Q3_K:
      return &pack_panel<Q3K>;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace pack
}  // namespace core

CORE_API int64_t core_cpu_pack_blocks(const core_pack_args* args) {
  using namespace core::pack;
  PackPanel* pack = panel_packer(args->format);
  if (pack == nullptr) return -1;
  each_panel(*args, [&](int64_t panel) { pack(*args, panel); });
  return 0;
}
