// One expert's product, as a thread makes its share of it.
#pragma once

#include "experts/order.h"
#include "gemm/cut.h"

namespace core {
namespace experts {
namespace {

using gemm::Kernel;
using gemm::kPanel;
using gemm::smaller;
using gemm::Walk;

constexpr int64_t kThreadWork = 1 << 17;  // multiply-adds below which another thread costs more than it brings

inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

inline int64_t threads_for(int64_t threads, int64_t pairs, int64_t n, int64_t k) {
  return larger(smaller(threads, pairs * n * larger(k, 1) / kThreadWork), 1);
}

// What the two calls have in common.
template <typename Args>
core_gemm_args common_args(const Args& a) {
  core_gemm_args args{};
  args.n = a.n;
  args.k = a.k;
  args.x_dtype = a.x_dtype;
  args.y_dtype = a.y_dtype;
  args.format = a.format;
  args.threads = 1;
  return args;
}

// The product of one expert, whose rows begin at `start`; without activations and results.
template <typename Args>
core_gemm_args expert_args(const Args& a, const Order& order, int64_t expert) {
  core_gemm_args args = common_args(a);
  args.w = static_cast<const char*>(a.w) + expert * a.expert_bytes;
  args.bias = a.bias == nullptr ? nullptr : a.bias + expert * a.bias_stride;
  args.m = order.count(expert);
  return args;
}

// Activations of an expert's rows.
struct Source {
  const char* x;
  int64_t row_bytes;
  const int32_t* pairs;  // row i is that of the token of pair i; null: rows lie as they are wanted
  int64_t top_k;

  const char* row(int64_t i) const { return x + (pairs == nullptr ? i : pairs[i] / top_k) * row_bytes; }
};

// The most that any expert with up to `rows` rows needs of a thread: its prepared rows, and the kernel's scratch.
struct Needs {
  int64_t row_bytes, prepared, scratch;

  int64_t bytes() const { return prepared + scratch; }
};

inline Needs needs_of(core_gemm_args args, int64_t rows) {
  Needs needs{};
  auto consider = [&](int64_t m) {
    args.m = m;
    const Kernel& kernel = gemm::select(args);
    Walk walk = gemm::walk_of(args, kernel);
    int64_t most = smaller(round_up(m, kernel.rows), walk.chunk * walk.tile_rows);
    needs.row_bytes = larger(needs.row_bytes, walk.call.row_bytes);
    needs.prepared = larger(needs.prepared, round_up(most * walk.call.row_bytes, 64));
    if (kernel.scratch_bytes != nullptr) {
      needs.scratch = larger(needs.scratch, round_up(kernel.scratch_bytes(args), 64));
    }
  };
  for (int64_t m = 1; m <= smaller(rows, gemm::kLastChange); ++m) consider(m);
  if (rows > gemm::kLastChange) consider(rows);
  return needs;
}

// Brings rows `begin .. end - 1` into the kernel's form, at `call.rows`.
inline void prepare(const Walk& walk, core_gemm_args args, const Source& source, int64_t begin, int64_t end) {
  gemm::Call call = walk.call;
  call.args = &args;
  args.x_stride = 0;  // a row at a time: they lie anywhere
  for (int64_t row = begin; row < end; ++row) {
    args.x = source.row(row);
    walk.kernel->prepare(call, row, row + 1);
  }
}

// Whether the kernel takes the rows of the source as they are.
inline bool usable(const Kernel& kernel, const core_gemm_args& args, const Source& source) {
  return kernel.direct != nullptr && kernel.direct(args) && (source.pairs == nullptr || args.m == 1);
}

// Panels `first .. last - 1` of an expert's product. `prepared`: its rows in the kernel's form, or null; `own`: memory
// of this thread, as `needs_of` says.
inline void multiply(core_gemm_args& args, const Source& source, const char* prepared, int64_t first, int64_t last,
                     const Needs& needs, char* own) {
  const Kernel& kernel = gemm::select(args);
  Walk walk = gemm::walk_of(args, kernel);
  walk.call.args = &args;
  bool direct = usable(kernel, args, source);
  char* scratch = kernel.scratch_bytes == nullptr || kernel.scratch_bytes(args) == 0 ? nullptr : own + needs.prepared;
  int64_t prepared_bytes = walk.call.row_bytes;
  if (direct) walk.call.row_bytes = source.row_bytes;
  if (kernel.enter != nullptr) kernel.enter();
  for (int64_t row = 0, step = walk.chunk * walk.tile_rows; row < args.m; row += step) {
    int64_t row_end = smaller(row + step, args.m);
    if (direct) {
      walk.call.rows = source.row(0);
    } else if (prepared != nullptr) {
      walk.call.rows = prepared;
    } else {
      walk.call.rows = own - row * prepared_bytes;
      prepare(walk, args, source, row, row_end);
    }
    gemm::walk_panels(walk, row, row_end, first, last, scratch, nullptr);
  }
  if (kernel.leave != nullptr) kernel.leave();
}

}  // namespace
}  // namespace experts
}  // namespace core
