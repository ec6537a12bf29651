// Element types of tensors that cross the C ABI, and conversions that every instruction set has.
#pragma once

#include <cstdint>
#include <cstring>

// Values of every `dtype` field; they are part of the ABI.
enum core_dtype : int64_t {
  CORE_F32 = 0,
  CORE_BF16 = 1,
  CORE_F16 = 2,
  CORE_I8 = 3,
  CORE_U8 = 4,
  CORE_F8_E4M3 = 5,  // these two: elements of a KV cache
  CORE_F8_E5M2 = 6,
};

// Marks a function that Python or an op program calls.
#define CORE_API extern "C" __attribute__((visibility("default")))

namespace core {

// bfloat16 as stored: a distinct type, so that overloads and templates tell it from an integer.
struct bf16 {
  uint16_t bits;
};
static_assert(sizeof(bf16) == 2, "bf16 is two bytes");

namespace {  // per translation unit: an inline function shared between instruction sets would be merged by the linker

inline float to_float(bf16 value) {
  uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}

inline float to_float(float value) { return value; }

inline int64_t element_bytes(int64_t dtype) { return dtype == CORE_F32 ? 4 : dtype == CORE_BF16 || dtype == CORE_F16 ? 2 : 1; }

// Rounds to nearest even; a NaN stays one.
inline bf16 to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

template <typename T>
inline T from_float(float value);
template <>
inline float from_float<float>(float value) {
  return value;
}
template <>
inline bf16 from_float<bf16>(float value) {
  return to_bf16(value);
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace
}  // namespace core
