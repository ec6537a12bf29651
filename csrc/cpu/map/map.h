// Entries of this folder: operations element by element, copies of strided tensors, and reductions of rows.
#pragma once

#include "common/types.h"

extern "C" {

// Operations of one tensor, then of two. What is computed is computed in float32 and rounded once.
enum core_map_operation : int64_t {
  CORE_MAP_SAME = 0,  // rounds to `out_dtype`
  CORE_MAP_NEGATE,
  CORE_MAP_ABSOLUTE,
  CORE_MAP_RELU,
  CORE_MAP_SQUARE,
  CORE_MAP_ROOT,
  CORE_MAP_RECIPROCAL_ROOT,
  CORE_MAP_RECIPROCAL,
  CORE_MAP_EXPONENTIAL,
  CORE_MAP_TANH,
  CORE_MAP_SIGMOID,
  CORE_MAP_SILU,
  CORE_MAP_GELU,
  CORE_MAP_GELU_TANH,
  CORE_MAP_ADD,
  CORE_MAP_SUBTRACT,
  CORE_MAP_SUBTRACT_FROM,  // y - x
  CORE_MAP_MULTIPLY,
  CORE_MAP_DIVIDE,
  CORE_MAP_MAXIMUM,  // these two: a NaN of either passes on
  CORE_MAP_MINIMUM,
  CORE_MAP_SOFTPLUS,  // log(1 + e^(y x)) / y
};

// out[i, j, k] = operation(x[i, j, k], y[i, j, k]). Strides count elements; 0 repeats what is there. The elements of
// `out` lie next to each other within a row. `y` null: every element of it is `scalar`. `out` may be `x` or `y` where
// their strides agree.
struct core_map_args {
  const void *x, *y;
  void* out;
  int64_t outer, inner, size;
  int64_t x_outer, x_inner, x_step;
  int64_t y_outer, y_inner, y_step;
  int64_t out_outer, out_inner;
  int64_t operation;  // enum core_map_operation
  int64_t x_dtype, y_dtype, out_dtype;
  int64_t threads;
  double scalar;
};

// out[i, j, k] = x[i, j, k], for elements of `item` bytes: 1, 2, 4 or 8. Strides count elements.
struct core_copy_args {
  const void* x;
  void* out;
  int64_t outer, inner, size;
  int64_t x_outer, x_inner, x_step;
  int64_t out_outer, out_inner, out_step;
  int64_t item, threads;
};

// What becomes of a row. Computed in float32, by tiles whose results are joined, and rounded once.
enum core_reduce_operation : int64_t {
  CORE_REDUCE_SUM = 0,
  CORE_REDUCE_MEAN,
  CORE_REDUCE_GREATEST,  // these two: a NaN passes on
  CORE_REDUCE_LEAST,
};

// out[i, j] = operation(x[i, j, 0], ..., x[i, j, size - 1]). Strides count elements.
struct core_reduce_args {
  const void* x;
  void* out;
  int64_t outer, inner, size;
  int64_t x_outer, x_inner, x_step;
  int64_t out_outer, out_inner;
  int64_t operation;  // enum core_reduce_operation
  int64_t x_dtype, out_dtype;
  int64_t threads;
};

void core_cpu_map(const core_map_args* args);
void core_cpu_reduce(const core_reduce_args* args);
void core_cpu_copy(const core_copy_args* args);

}  // extern "C"
