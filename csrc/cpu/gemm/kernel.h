// What a kernel offers to the driver (gemm.cpp). Plain data: it crosses instruction sets.
#pragma once

#include "gemm/gemm.h"

namespace core {
namespace gemm {

constexpr int64_t kPanel = 16;       // channels of a panel
constexpr int64_t kBlock = 32;       // inputs of an AMX tile of bf16 and of a GGUF block
constexpr int64_t kMostRows = 32;    // of one tile
constexpr int64_t kMostPanels = 4;

namespace {
// Inputs with their padding: whole AMX tiles, which are 32 inputs of bf16 and 64 of int8.
inline int64_t padded_inputs(const core_gemm_args& args) {
  bool bytes = args.format == CORE_GEMM_W8A8 || args.format == CORE_GEMM_W8A16;
  return round_up(args.k, bytes ? 64 : 32);
}
}  // namespace

// One call as the kernels see it.
struct Call {
  const core_gemm_args* args;
  const char* rows;   // activations in the kernel's form: the caller's own or those in the workspace
  int64_t row_bytes;  // from one row to the next
  int64_t inputs;     // k, padded
};

// A tile of the result: `rows` rows and `panels` panels.
struct Tile {
  int64_t row, rows, panel, panels;
};

// The largest value of a row so far.
struct Best {
  float value;
  int64_t channel;
};

struct Kernel {
  int64_t rows, panels;  // of a full tile
  // Whether the caller's activations can be used as they are; null: never.
  bool (*direct)(const core_gemm_args& args);
  // Bytes of one prepared row.
  int64_t (*row_bytes)(const core_gemm_args& args);
  // Brings rows `begin .. end - 1` into the kernel's form, at `call.rows`.
  void (*prepare)(const Call& call, int64_t begin, int64_t end);
  // Computes a tile: `out[row][channel]`, rows `panels * 16` floats apart; without channel scale and bias.
  // `scratch`: what `expand` made of the panels, or null.
  void (*tile)(const Call& call, const Tile& tile, const char* scratch, float* out);
  // Bytes of scratch a thread needs for a tile's panels, and what fills it; null: none is needed.
  int64_t (*scratch_bytes)(const core_gemm_args& args);
  void (*expand)(const Call& call, const Tile& tile, char* scratch);
  // Called by each thread before its first and after its last tile; null: nothing to do.
  void (*enter)();
  void (*leave)();
};

// Scales, biases, converts and stores a tile, and keeps each row's largest value in `best[row]` (null: not wanted).
typedef void Finish(const Call& call, const Tile& tile, const float* out, int64_t stride, Best* best);

// The kernel for these arguments on this machine.
const Kernel& select(const core_gemm_args& args);

}  // namespace gemm
}  // namespace core
