// Codes of 32 inputs of 16 rows as lines of a panel.
#pragma once

#include "common/parallel.h"
#include "pack/pack.h"

namespace core {
namespace pack {
namespace {

constexpr int64_t kRows = 16, kInputs = 32, kLine = 64, kLines = 8;

// Line g, four codes of each row, for g = 0 .. 7. Rows of codes are `stride` bytes apart.
inline void gather(const uint8_t* codes, int64_t stride, uint8_t* lines) {
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t g = 0; g < kLines; ++g) std::memcpy(lines + g * kLine + row * 4, codes + row * stride + g * 4, 4);
  }
}

constexpr int64_t kShare = 1 << 20;  // bytes that are worth a thread, which may have to be waited for

// Calls `body(panel)` for every panel of a call.
template <typename Body>
void each_panel(const core_pack_args& args, const Body& body) {
  int64_t grain = args.panel_bytes < kShare ? kShare / args.panel_bytes : 1;
  parallel_for(ceil_div(args.n, kRows), args.threads, grain, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) body(panel);
  });
}

constexpr uint64_t kEachByte = 0x0101010101010101u;

inline uint64_t load_word(const uint8_t* from) {
  uint64_t word;
  std::memcpy(&word, from, 8);
  return word;
}

// Bits `first ..` of the codes of `count` lines, `width` bits of each, into one line. Eight codes at a time.
template <int first, int width, int count>
inline void merge(const uint8_t* lines, char* to) {
  constexpr uint64_t mask = kEachByte * ((1 << width) - 1);
  for (int64_t i = 0; i < kLine; i += 8) {
    uint64_t merged = 0;
    for (int g = 0; g < count; ++g) merged |= (load_word(lines + g * kLine + i) >> first & mask) << (g * width);
    std::memcpy(to + i, &merged, 8);
  }
}

// Stores a block of codes of `bits` bits; returns its bytes.
template <int bits>
inline int64_t store_block(const uint8_t* codes, int64_t stride, char* to) {
  if (bits == 8) {
    gather(codes, stride, reinterpret_cast<uint8_t*>(to));
    return kLines * kLine;
  }
  uint8_t lines[kLines * kLine];
  gather(codes, stride, lines);
  if (bits == 1) {
    merge<0, 1, 8>(lines, to);
    return kLine;
  }
  if (bits == 2) {
    merge<0, 2, 4>(lines, to);
    merge<0, 2, 4>(lines + 4 * kLine, to + kLine);
    return 2 * kLine;
  }
  if (bits == 3) {
    merge<0, 2, 4>(lines, to);
    merge<0, 2, 4>(lines + 4 * kLine, to + kLine);
    merge<2, 1, 8>(lines, to + 2 * kLine);
    return 3 * kLine;
  }
  for (int64_t i = 0; i < 4 * kLine; ++i) to[i] = static_cast<char>((lines[i] & 15) | lines[4 * kLine + i] << 4);
  if (bits == 4) return 4 * kLine;
  if (bits == 5) {
    merge<4, 1, 8>(lines, to + 4 * kLine);
    return 5 * kLine;
  }
  merge<4, 2, 4>(lines, to + 4 * kLine);
  merge<4, 2, 4>(lines + 4 * kLine, to + 5 * kLine);
  return 6 * kLine;
}

}  // namespace
}  // namespace pack
}  // namespace core
