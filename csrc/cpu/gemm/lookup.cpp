// Decodes single rows of packed weights. Few rows are wanted at a time, so this is plain code for every processor.
#include <type_traits>

#include "common/parallel.h"
#include "gemm/blocks.h"
#include "gemm/float8.h"
#include "gemm/tables.h"

namespace core {
namespace gemm {
namespace {

constexpr int64_t kGrain = 4;  // rows for which another thread is worth its while

// What a row is decoded from.
struct Row {
  const char* lines;   // of its panel
  const char* scales;  // of its panel
  int64_t channel;     // in its panel
  int64_t k;
};

float half(const char* from) {
  uint16_t bits;
  std::memcpy(&bits, from, 2);
  uint32_t wide = static_cast<uint32_t>(bits & 0x7fffu) << 13;
  bool finite = (bits & 0x7c00u) != 0x7c00u;
  if (!finite) wide |= 0x7f800000u;
  float value;
  std::memcpy(&value, &wide, 4);
  if (finite) value *= 5.192296858534828e33f;  // 2^112: the exponents' biases differ by that
  return (bits & 0x8000u) != 0 ? -value : value;
}

template <typename From, typename To>
void read_dense(const Row& row, To* to) {
  constexpr int64_t inputs = 4 / sizeof(From);
  if (std::is_same<From, bf16>::value && std::is_same<To, bf16>::value) {
    const char* from = row.lines + row.channel * 4;
    for (int64_t i = 0; i + 1 < row.k; i += 2, from += 64) std::memcpy(to + i, from, 4);
    if (row.k % 2 != 0) std::memcpy(to + row.k - 1, from, 2);
    return;
  }
  for (int64_t i = 0; i < row.k; ++i) {
    From value;
    std::memcpy(&value, row.lines + i / inputs * 64 + row.channel * 4 + i % inputs * sizeof(From), sizeof(From));
    to[i] = from_float<To>(to_float(value));
  }
}

template <typename To>
void read_int8(const Row& row, To* to) {
  float scale;
  std::memcpy(&scale, row.scales + row.channel * 4, 4);
  for (int64_t i = 0; i < row.k; ++i) {
    to[i] = from_float<To>(scale * static_cast<int8_t>(row.lines[i / 4 * 64 + row.channel * 4 + i % 4]));
  }
}

// With a scale for so many inputs; 0: for all of them.
template <typename C, int64_t inputs, typename To>
void read_float8(const Row& row, To* to) {
  for (int64_t i = 0; i < row.k; ++i) {
    float scale;
    std::memcpy(&scale, row.scales + (inputs == 0 ? 0 : i / (inputs + !inputs)) * 64 + row.channel * 4, 4);
    auto code = static_cast<uint8_t>(row.lines[i / 4 * 64 + row.channel * 4 + kInputAt[i % 4]]);
    to[i] = from_float<To>(widen_code<C>(code) * scale);
  }
}

// With a scale for 64 inputs.
template <typename Table, typename To>
void read_table(const Row& row, To* to) {
  for (int64_t i = 0; i < row.k; ++i) {
    float scale;
    uint32_t codes;
    std::memcpy(&scale, row.scales + i / 64 * 64 + row.channel * 4, 4);
    std::memcpy(&codes, row.lines + i / 8 * 64 + row.channel * 4, 4);
    int64_t place = i % 2 * 4 + i % 8 / 2;  // see kInputOf
    to[i] = from_float<To>(Table::values[codes >> (4 * place) & 15u] * scale);
  }
}

// Code `i` of a block; `codes` is where the channel's first dword lies.
template <typename F>
int code_at(const char* codes, int i) {
  int g = i / 4, j = i % 4;
  auto byte = [&](int line) { return static_cast<uint8_t>(codes[line * 64 + j]); };
  if (F::bits == 1) return (byte(0) >> g & 1) << 1;
  if (F::bits <= 3) {
    int third = F::bits == 3 ? (byte(2) >> g & 1) << 2 : 0;
    return (byte(g / 4) >> (g % 4 * 2) & 3) | third;
  }
  if (F::bits == 8) return byte(g);
  int code = (byte(g % 4) >> (g < 4 ? 0 : 4)) & 15;
  if constexpr (F::Table::is_table) return F::Table::values[code];
  if (F::bits == 5) code |= (byte(4) >> g & 1) << 4;
  if (F::bits == 6) code |= (byte(4 + g / 4) >> (g % 4 * 2) & 3) << 4;
  return code;
}

// Scales of both halves of a block and what is added.
struct Scale {
  float low, high, minimum;
};

template <typename F>
Scale scale_at(const Row& row, int64_t block) {
  const char* at = row.scales + block / F::group * F::scale_bytes;
  if (F::kind == Scales::powers) {
    uint32_t bits = static_cast<uint32_t>(static_cast<uint8_t>(at[row.channel])) << 23;
    float power;
    std::memcpy(&power, &bits, 4);
    return {power, power, 0.0f};
  }
  if (F::kind == Scales::floats) {
    float whole;
    std::memcpy(&whole, row.scales + row.k / kBlock * F::scale_bytes + row.channel * 4, 4);
    return {widen_code<E4m3>(static_cast<uint8_t>(at[row.channel])) * whole,
            widen_code<E4m3>(static_cast<uint8_t>(at[16 + row.channel])) * whole, 0.0f};
  }
  float scale = half(at + row.channel * 2);
  float minimum = F::has_minimum ? half(at + 32 + row.channel * 2) : 0.0f;
  if (F::kind == Scales::nested) {
    at += 64 + block % F::group * 32 + row.channel;
    scale *= static_cast<uint8_t>(at[0]);
    return {scale, scale, -(minimum * static_cast<uint8_t>(at[16]))};
  }
  if (F::kind == Scales::signed_bytes) {
    scale *= static_cast<int8_t>(at[32 + block % F::group * 16 + row.channel]);
    return {scale, scale, 0.0f};
  }
  if (F::kind == Scales::halves) {
    at += 32 + block % F::group * 32 + row.channel;
    return {scale * static_cast<int8_t>(at[0]), scale * static_cast<int8_t>(at[16]), 0.0f};
  }
  return {scale, scale, minimum};
}

template <typename F, typename To>
void read_blocks(const Row& row, To* to) {
  for (int64_t block = 0; block < row.k / kBlock; ++block) {
    const char* codes = row.lines + block * F::code_bytes + row.channel * 4;
    Scale scale = scale_at<F>(row, block);
    for (int i = 0; i < kBlock; ++i) {
      float code = static_cast<float>(code_at<F>(codes, i) - F::zero);
      *to++ = from_float<To>(code * (i < 16 ? scale.low : scale.high) + scale.minimum);
    }
  }
}

template <typename To>
using Read = void(const Row&, To*);

template <typename To>
Read<To>* reader(int64_t format) {
  static constexpr Read<To>* readers[CORE_GEMM_FORMATS] = {
      &read_dense<float, To>,   &read_dense<bf16, To>,    &read_int8<To>,           &read_int8<To>,
      &read_blocks<Q4_0, To>,   &read_blocks<Q4_1, To>,   &read_blocks<Q5_0, To>,   &read_blocks<Q5_1, To>,
      &read_blocks<Q8_0, To>,   &read_blocks<Q4_K, To>,   &read_blocks<Q5_K, To>,   &read_blocks<Q6_K, To>,
      &read_blocks<Q4_64, To>,  &read_blocks<Q4_128, To>,
      &read_blocks<Mxfp4, To>,  &read_blocks<Nvfp4, To>,  &read_blocks<Q1_0, To>,   &read_blocks<Q2_0, To>,
      &read_blocks<Iq4Nl, To>,  &read_blocks<Iq4Xs, To>,  &read_blocks<Q3_K, To>,
      &read_float8<E4m3, 0, To>, &read_float8<E4m3, 128, To>, &read_float8<E4m3, 32, To>,
      &read_table<Nf4, To>,     &read_table<Fp4, To>,
      &read_float8<E5m2, 0, To>, &read_float8<E5m2, 128, To>, &read_float8<E5m2, 32, To>};
  return readers[format_of(format)];
}

template <typename To>
void look_up(const core_lookup_args& args) {
  Read<To>* read = reader<To>(args.format);
  int64_t panel = panel_bytes(args.format, args.k), scales = line_bytes(args.format, args.k);
  auto lines_of = [&](int64_t i) { return static_cast<const char*>(args.w) + args.ids[i] / kPanel * panel; };
  // A row has a dword in every line of its panel: the next row's lines are asked for while this one is decoded.
  auto ask = [&](int64_t i) {
    for (int64_t at = 0; at < panel; at += 64) __builtin_prefetch(lines_of(i) + at);
  };
  parallel_for(args.count, args.threads, kGrain, [&](int64_t begin, int64_t end) {
    ask(begin);
    for (int64_t i = begin; i < end; ++i) {
      if (i + 1 < end) ask(i + 1);
      const char* lines = lines_of(i);
      read({lines, lines + scales, args.ids[i] % kPanel, args.k}, static_cast<To*>(args.out) + i * args.k);
    }
  });
}

}  // namespace
}  // namespace gemm
}  // namespace core

CORE_API void core_cpu_lookup(const core_lookup_args* args) {
  if (args->out_dtype == CORE_F32) {
    core::gemm::look_up<float>(*args);
  } else {
    core::gemm::look_up<core::bf16>(*args);
  }
}
