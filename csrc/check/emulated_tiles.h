// AMX's tiles and what the kernels do with them, in plain C++. A build with CORE_CPU_EMULATED_TILES includes this before
// every .amx.cpp, so that the kernels for AMX run on processors without it (tools/check_tiles.py). Slow: for tests alone.
//
// By Intel's manual, rounding included. What a processor would refuse ends the process with a message. An instruction
// that is not defined here stays what it is, and is illegal where there is no AMX.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace core {
namespace emulated {

constexpr int kTiles = 8, kRows = 16, kRowBytes = 64, kWords = kRowBytes / 4;

struct Register {
  int rows, bytes;  // as configured; 0: not
  alignas(64) unsigned char row[kRows][kRowBytes];
};

struct State {
  bool configured;
  Register tile[kTiles];
};

// One of each thread for all kernels, as a processor has one: the variable alone is shared between sources.
inline thread_local State state{};

namespace {

[[noreturn]] inline void refuse(const char* instruction, const char* why) {
  std::fprintf(stderr, "%s: %s: a processor would refuse it\n", instruction, why);
  std::abort();
}

inline Register& tile(const char* instruction, int number) {
  if (!state.configured || state.tile[number].rows == 0) refuse(instruction, "of a tile that is not configured");
  return state.tile[number];
}

inline void load_config(const void* from) {
  struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } config;
  static_assert(sizeof config == 64, "what the instruction reads");
  std::memcpy(&config, from, sizeof config);
  state = State{};
  if (config.palette == 0) return;
  if (config.palette != 1 || config.start != 0) refuse("LDTILECFG", "of another palette than 1, or of a start row");
  for (uint8_t byte : config.reserved) {
    if (byte != 0) refuse("LDTILECFG", "of reserved bytes that are not 0");
  }
  for (int i = 0; i < 16; ++i) {
    int rows = config.rows[i], bytes = config.bytes[i];
    if (rows > (i < kTiles ? kRows : 0) || bytes > (i < kTiles ? kRowBytes : 0) || (rows == 0) != (bytes == 0)) {
      refuse("LDTILECFG", "of a tile with so many rows or bytes");
    }
    if (i >= kTiles) continue;
    state.tile[i].rows = rows;
    state.tile[i].bytes = bytes;
  }
  state.configured = true;
}

inline void release() { state = State{}; }

inline void zero(int number) { std::memset(tile("TILEZERO", number).row, 0, sizeof Register::row); }

inline void load(int number, const void* base, int64_t stride) {
  Register& to = tile("TILELOADD", number);
  std::memset(to.row, 0, sizeof to.row);
  for (int r = 0; r < to.rows; ++r) std::memcpy(to.row[r], static_cast<const char*>(base) + r * stride, to.bytes);
}

inline void store(int number, void* base, int64_t stride) {
  const Register& from = tile("TILESTORED", number);
  for (int r = 0; r < from.rows; ++r) std::memcpy(static_cast<char*>(base) + r * stride, from.row[r], from.bytes);
}

struct Operands {
  Register& sums;
  const Register &a, &b;
};

inline Operands operands(const char* instruction, int sums, int a, int b) {
  if (sums == a || sums == b || a == b) refuse(instruction, "of one tile twice");
  Operands o{tile(instruction, sums), tile(instruction, a), tile(instruction, b)};
  bool words = o.sums.bytes % 4 == 0 && o.a.bytes % 4 == 0;
  if (!words || o.sums.rows != o.a.rows || o.sums.bytes != o.b.bytes || o.a.bytes != 4 * o.b.rows) {
    refuse(instruction, "of tiles whose rows and bytes do not fit together");
  }
  return o;
}

// `to`: the dwords of a row.
template <typename T>
inline void read_row(const unsigned char* row, T (&to)[kWords]) {
  std::memcpy(to, row, kRowBytes);
}

inline float as_number(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Denormal numbers are zeros, those read and those computed.
inline float flushed(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return as_number((bits & 0x7f800000u) != 0 ? bits : bits & 0x80000000u);
}

// Of a row, products of first and of second numbers are added up apart, each in one rounding; then both sums, and these
// to what there was.
inline void dot_bf16(int sums, int a, int b) {
  Operands o = operands("TDPBF16PS", sums, a, b);
  for (int m = 0; m < o.sums.rows; ++m) {
    float first[kWords] = {}, second[kWords] = {}, total[kWords];
    uint32_t pairs[kWords], weights[kWords];
    read_row(o.a.row[m], pairs);
    for (int k = 0; k < o.b.rows; ++k) {
      float x = flushed(as_number(pairs[k] << 16)), y = flushed(as_number(pairs[k] & 0xffff0000u));
      read_row(o.b.row[k], weights);
      for (int n = 0; n < kWords; ++n) {
        first[n] = flushed(__builtin_fmaf(x, flushed(as_number(weights[n] << 16)), first[n]));
        second[n] = flushed(__builtin_fmaf(y, flushed(as_number(weights[n] & 0xffff0000u)), second[n]));
      }
    }
    read_row(o.sums.row[m], total);
    for (int n = 0; n < kWords; ++n) total[n] = flushed(flushed(total[n]) + flushed(first[n] + second[n]));
    std::memcpy(o.sums.row[m], total, o.sums.bytes);
  }
}

// Byte `j` of a dword with its sign.
inline int32_t signed_byte(uint32_t word, int j) { return static_cast<int32_t>(word << (24 - 8 * j)) >> 24; }

// Signed bytes; sums that are too large wrap.
inline void dot_bytes(int sums, int a, int b) {
  Operands o = operands("TDPBSSD", sums, a, b);
  for (int m = 0; m < o.sums.rows; ++m) {
    uint32_t fours[kWords], weights[kWords], total[kWords];
    read_row(o.a.row[m], fours);
    read_row(o.sums.row[m], total);
    for (int k = 0; k < o.b.rows; ++k) {
      read_row(o.b.row[k], weights);
      for (int j = 0; j < 4; ++j) {
        int32_t x = signed_byte(fours[k], j);
        for (int n = 0; n < kWords; ++n) total[n] += static_cast<uint32_t>(x * signed_byte(weights[n], j));
      }
    }
    std::memcpy(o.sums.row[m], total, o.sums.bytes);
  }
}

}  // namespace
}  // namespace emulated
}  // namespace core

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbssd
#undef _tile_dpbf16ps
#define _tile_loadconfig(from) ::core::emulated::load_config(from)
#define _tile_release() ::core::emulated::release()
#define _tile_zero(tile) ::core::emulated::zero(tile)
#define _tile_loadd(tile, from, stride) ::core::emulated::load(tile, from, stride)
#define _tile_stored(tile, to, stride) ::core::emulated::store(tile, to, stride)
#define _tile_dpbssd(sums, a, b) ::core::emulated::dot_bytes(sums, a, b)
#define _tile_dpbf16ps(sums, a, b) ::core::emulated::dot_bf16(sums, a, b)
