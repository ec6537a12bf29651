// What a kernel offers to the driver (gemm.cpp). Plain data: it crosses instruction sets.
#pragma once

#include "gemm/gemm.h"

namespace core {
namespace gemm {

constexpr int64_t kPanel = 16;       // channels of a panel
constexpr int64_t kBlock = 32;       // inputs of an AMX tile of bf16 and of a GGUF block
constexpr int64_t kMostRows = 32;    // of one tile
constexpr int64_t kMostPanels = 4;
constexpr int kBlockFormats = CORE_GEMM_E4M3 - CORE_GEMM_Q4_0;
constexpr int kFloatFormats = CORE_GEMM_FORMATS - CORE_GEMM_E4M3;

// What a panel consists of.
struct Storage {
  int64_t codes;   // bytes of 32 inputs
  int64_t group;   // blocks of 32 inputs that share scales
  int64_t scales;  // bytes of a group's scales
  int64_t tail;    // bytes of what is said once
};

constexpr Storage kStorage[CORE_GEMM_FORMATS] = {
    {2048, 1, 0, 0},  {1024, 1, 0, 0},  {512, 1, 0, 128}, {512, 1, 0, 128}, {256, 1, 32, 0},
    {256, 1, 64, 0},  {320, 1, 32, 0},  {320, 1, 64, 0},  {512, 1, 32, 0},  {256, 8, 320, 0},
    {320, 8, 320, 0}, {384, 8, 288, 0}, {256, 2, 64, 0},  {256, 4, 64, 0},
    {256, 1, 16, 0},  {256, 1, 32, 64}, {64, 4, 32, 0},  {128, 2, 32, 0},
    {256, 1, 32, 0},  {256, 8, 160, 0}, {192, 8, 288, 0}, {512, 1, 0, 64},
    {512, 4, 64, 0},  {512, 1, 64, 0},  {256, 2, 64, 0}, {256, 2, 64, 0},
    {512, 1, 0, 64},  {512, 4, 64, 0},  {512, 1, 64, 0}};

namespace {
// The format alone, without what is asked of it.
inline int64_t format_of(int64_t format) {
  return format & ~(CORE_GEMM_BY_ROW | CORE_GEMM_COARSE | CORE_GEMM_FINE);
}

// Inputs with their padding: whole AMX tiles, which are 32 inputs of bf16 and 64 of int8.
inline int64_t padded_inputs(int64_t format, int64_t k) {
  format = format_of(format);
  return round_up(k, format == CORE_GEMM_W8A8 || format == CORE_GEMM_W8A16 ? 64 : 32);
}
inline int64_t padded_inputs(const core_gemm_args& args) { return padded_inputs(args.format, args.k); }

// Bytes of the lines of a panel, after which its scales begin, and of all of it.
inline int64_t line_bytes(int64_t format, int64_t k) {
  return padded_inputs(format, k) / kBlock * kStorage[format_of(format)].codes;
}
inline int64_t panel_bytes(int64_t format, int64_t k) {
  const Storage& storage = kStorage[format_of(format)];
  int64_t groups = ceil_div(padded_inputs(format, k) / kBlock, storage.group);
  return round_up(line_bytes(format, k) + groups * storage.scales + storage.tail, 64);
}
}  // namespace

// One call as the kernels see it.
struct Call {
  const core_gemm_args* args;
  const char* rows;   // activations in the kernel's form: the caller's own or those in the workspace
  int64_t row_bytes;  // from one row to the next
  int64_t inputs;     // k, padded
  int64_t panel_bytes;
};

// Memory that is wanted soon: bytes `begin .. end - 1` of runs that are `stride` bytes apart. No address: what the tile
// knows best.
struct Soon {
  const char* at = nullptr;
  int64_t run = 0, stride = 0, begin = 0, end = 0;
};

// A tile of the result: `rows` rows and `panels` panels.
struct Tile {
  int64_t row, rows, panel, panels;
  int64_t input = 0, inputs = 0;  // those that are multiplied; the first ones start the sums, others are added to them
  Soon soon = {};                 // what it asks for on its way
};

// What becomes of a product's results: act(first half of the channels) * second half.
struct Gating {
  void* out;  // of y's dtype
  int64_t stride, activation;
};

// The largest value of a row so far.
struct Best {
  float value;
  int64_t channel;
};

namespace {
// The first panel of a tile, and what of it comes after the lines.
inline const char* panel_of(const Call& call, int64_t panel) {
  return static_cast<const char*>(call.args->w) + panel * call.panel_bytes;
}
inline int64_t scales_at(const Call& call) { return line_bytes(call.args->format, call.args->k); }

// Whether results are still to be multiplied by a float32 scale of each channel, and where in a panel these scales are.
constexpr bool scaled(int64_t format) { return kStorage[format].tail != 0; }
inline int64_t channel_scales_at(const Call& call) {
  const Storage& storage = kStorage[format_of(call.args->format)];
  return scales_at(call) + ceil_div(call.inputs / kBlock, storage.group) * storage.scales;
}
}  // namespace

struct Kernel {
  int64_t rows, panels;  // of a full tile
  // Whether the caller's activations can be used as they are; null: never.
  bool (*direct)(const core_gemm_args& args);
  // Bytes of one prepared row.
  int64_t (*row_bytes)(const core_gemm_args& args);
  // Brings rows `begin .. end - 1` into the kernel's form, at `call.rows`.
  void (*prepare)(const Call& call, int64_t begin, int64_t end);
  // Computes a tile: `out[row][channel]`, rows `panels * 16` floats apart; without channel scale and bias. Kernels
  // without a depth take all inputs.
  // `scratch`: what `expand` made of the panels, or null.
  void (*tile)(const Call& call, const Tile& tile, const char* scratch, float* out);
  // Computes and finishes rows `tile.row .. row_end - 1` by as many of the tile's panels, of which there may be more than
  // `panels`, as it returns; `tile` and Finish do the others. Null: there is no such way.
  int64_t (*stripe)(const Call& call, const Tile& tile, int64_t row_end, const char* scratch);
  // As `stripe` for panels of the first half and those of the second that belong to them, y being bf16; results go
  // through the gate. Null: there is no such way.
  void (*gated)(const Call& call, const Tile& tile, int64_t row_end, const Gating& gating);
  // Bytes of scratch a thread needs for a tile's panels, and what fills it; null: none is needed.
  int64_t (*scratch_bytes)(const core_gemm_args& args);
  void (*expand)(const Call& call, const Tile& tile, char* scratch);
  // Called by each thread before its first and after its last tile; null: nothing to do.
  void (*enter)();
  void (*leave)();
  // Rows from which tiles ask for the weights of the next ones: fewer wait for memory in any case. 0: they do not ask.
  int64_t asking = 0;
  // Inputs that so many tiles meet at once, where there are more; 0: all.
  int64_t depth = 0;
  // Rows from which a tile that is alone is told to ask for what lies a little ahead: it takes its panels in turn, so that
  // its weights are one stream from memory, and fewer rows ask by themselves. 0: never.
  int64_t in_turn = 0;
};

// Scales, biases, converts and stores a tile, and keeps each row's largest value in `best[row]` (null: not wanted).
typedef void Finish(const Call& call, const Tile& tile, const float* out, int64_t stride, Best* best);

// Which kernel it is does not depend on rows beyond so many.
constexpr int64_t kLastChange = 32;

// The kernel for these arguments on this machine.
const Kernel& select(const core_gemm_args& args);

}  // namespace gemm
}  // namespace core
