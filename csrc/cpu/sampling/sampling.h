// Entries of this folder: argument structs (part of the ABI) and what they do. Strides count elements.
#pragma once

#include "common/types.h"

extern "C" {

// best[i], places[i] = the largest of row i and the first place it stands at. A row that holds a NaN: NaN and 0.
struct core_argmax_args {
  const void* logits;
  float* best;
  int64_t* places;
  int64_t rows, size, stride;
  int64_t dtype, threads;
};

// out[i] = a token drawn from row rows[i] (`rows` null: row i) of `logits`; see `core.ops.sampling.draw`.
//
// - `numbers` has five rows, `count` long: temperature, top-k, top-p, min-p, uniform number. With `truncated` 0 the
//   three in the middle are not looked at.
// - Values are equal, and kept or cut together, if they are equal after the division by the temperature.
// - `scratch` has CORE_DRAW_SCRATCH * (size + CORE_DRAW_PAD) bytes for each of `threads`; null if nothing is truncated.
// - A row whose largest value is not finite gets 0.
struct core_draw_args {
  const void* logits;
  const int64_t* rows;
  const double* numbers;
  int64_t* out;
  void* scratch;
  int64_t count, size, stride, truncated;
  int64_t dtype, threads;
};

enum : int64_t { CORE_DRAW_SCRATCH = 20, CORE_DRAW_PAD = 16 };

void core_cpu_argmax(const core_argmax_args* args);
void core_cpu_draw(const core_draw_args* args);

}  // extern "C"
