// Activations in the form that a kernel reads. Included per instruction set; everything is in an unnamed namespace.
#pragma once

#include <type_traits>

#include "common/vec.h"
#include "gemm/kernel.h"

namespace core {
namespace gemm {
namespace {

// `count` values at `from` as `To`, rounded through bf16 first if `Round`, then zeros up to `padded`.
template <typename To, bool Round, typename From>
CORE_INLINE void convert_row(const From* from, To* to, int64_t count, int64_t padded) {
  if (std::is_same<To, From>::value && !Round && count == padded) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(To));
    return;
  }
  auto put = [&](int64_t i, vf value) {
    if (Round) {
      bf16 rounded[kLanes];
      store(rounded, value);
      value = load(rounded);
    }
    store(to + i, value);
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) put(i, load(from + i));
  if (i < count) {
    put(i, load_part(from + i, count - i));
    i += kLanes;
  }
  for (; i < padded; i += kLanes) store(to + i, vf{});
}

template <typename To, bool Round>
void convert_rows(const Call& call, int64_t begin, int64_t end) {
  const core_gemm_args& args = *call.args;
  for (int64_t row = begin; row < end; ++row) {
    To* to = reinterpret_cast<To*>(const_cast<char*>(call.rows) + row * call.row_bytes);
    if (args.x_dtype == CORE_F32) {
      convert_row<To, Round>(static_cast<const float*>(args.x) + row * args.x_stride, to, args.k, call.inputs);
    } else {
      convert_row<To, Round && false>(static_cast<const bf16*>(args.x) + row * args.x_stride, to, args.k, call.inputs);
    }
  }
}

template <typename T>
int64_t converted_bytes(const core_gemm_args& args) {
  return padded_inputs(args) * static_cast<int64_t>(sizeof(T));
}

// Whether the caller's rows already are what `convert_rows` would make of them, lines of `inputs` values included.
template <typename T, int64_t inputs>
bool usable(const core_gemm_args& args) {
  return args.x_dtype == (sizeof(T) == 4 ? CORE_F32 : CORE_BF16) && args.k % inputs == 0;
}

}  // namespace
}  // namespace gemm
}  // namespace core
