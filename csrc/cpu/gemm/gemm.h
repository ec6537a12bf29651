// Matrix products with packed weights: y (m, n) = x (m, k) . W (n, k)^T + bias.
//
// Weights are packed once, 16 output channels (a panel) together, so that one layout serves one row, few rows and many:
//
//   panel = 16 channels; inside a panel the inputs k follow each other in lines of 64 bytes, one dword per channel:
//   f32 1 input, bf16 2 inputs, i8 and f8 4 inputs. Channels are padded to 16 and inputs to 32 (i8:
//   64), with zeros. After the lines come the panel's scales, then zeros up to a multiple of 64 bytes:
//   W8: 16 float32 scales, 16 int32 sums of the channels' weights. Block formats: see blocks.h.
//   E4M3: 16 float32 scales, or so many for each group of inputs, 256 times those of the codes (see float8.h).
//   E5M2: the same, 65536 times those of the codes.
//   NF4, FP4: 16 float32 scales for each group of inputs; a line is 8 inputs (see tables.h).
//
// A panel is all there is to say of its channels: weights are stacked by putting their panels next to each other. A line
// is what one AVX-512 instruction (fma, vdpbf16ps, vpdpbusd) consumes for 16 channels; 16 lines are an AMX tile.
#pragma once

#include "common/types.h"

// How weights are stored and which activations meet them; values of `format`, part of the ABI.
enum core_gemm_format : int64_t {
  CORE_GEMM_F32 = 0,
  CORE_GEMM_BF16 = 1,   // activations are rounded to bf16
  CORE_GEMM_W8A8 = 2,   // int8 weights and one scale per channel; activations int8 with one scale per row
  CORE_GEMM_W8A16 = 3,  // the same weights, float activations
  CORE_GEMM_Q4_0 = 4,   // GGUF blocks; activations int8 with one scale per 32
  CORE_GEMM_Q4_1 = 5,
  CORE_GEMM_Q5_0 = 6,
  CORE_GEMM_Q5_1 = 7,
  CORE_GEMM_Q8_0 = 8,
  CORE_GEMM_Q4_K = 9,
  CORE_GEMM_Q5_K = 10,
  CORE_GEMM_Q6_K = 11,
  CORE_GEMM_Q4_64 = 12,   // as Q4_1, but 64 inputs share a scale and a minimum
  CORE_GEMM_Q4_128 = 13,  // and 128
  CORE_GEMM_MXFP4 = 14,   // codes of e2m1, a power of two for 32 inputs
  CORE_GEMM_NVFP4 = 15,   // and a scale in e4m3 for 16, one in float32 for a channel
  CORE_GEMM_Q1_0 = 16,    // two values, 128 inputs share a scale
  CORE_GEMM_Q2_0 = 17,    // four values, 64 inputs share a scale
  CORE_GEMM_IQ4_NL = 18,  // codes of a table, 32 inputs share a scale
  CORE_GEMM_IQ4_XS = 19,  // the same table, scales are multiples of what 256 inputs share
  CORE_GEMM_Q3_K = 20,
  CORE_GEMM_E4M3 = 21,    // float8 weights and one scale per channel; float activations
  CORE_GEMM_E4M3_128 = 22,  // and one for 128 inputs
  CORE_GEMM_E4M3_32 = 23,   // and one for 32
  CORE_GEMM_NF4 = 24,     // codes of a table, a scale for 64 inputs; float activations
  CORE_GEMM_FP4 = 25,     // and of another table
  CORE_GEMM_E5M2 = 26,      // as E4M3, other codes
  CORE_GEMM_E5M2_128 = 27,
  CORE_GEMM_E5M2_32 = 28,
  CORE_GEMM_FORMATS = 29,
};

// May be added to a block format. Other formats are what they are, with them or without.
//
// What a row gives is the same, bit for bit, however many rows are computed with it. Without it many rows may be
// multiplied otherwise than few.
constexpr int64_t CORE_GEMM_BY_ROW = 1 << 8;
// Where activations are rounded to integers, to 8 bits, or to 15 bits. Without either to 15 where that takes little longer.
constexpr int64_t CORE_GEMM_COARSE = 1 << 9;
constexpr int64_t CORE_GEMM_FINE = 1 << 10;

struct core_gemm_args {
  const void* x;         // (m, k), rows `x_stride` elements apart
  const void* w;         // packed weights
  const int32_t* order;  // (k): packed input i meets input order[i] of x; or null
  const float* bias;     // (n), or null
  void* y;               // (m, n), rows `y_stride` elements apart; null where only `best` is wanted
  int64_t* best;         // (m): channel of each row's largest value as y holds it, the lowest of equals; or null
  void* workspace;       // core_cpu_gemm_workspace() bytes, 64-byte aligned; no two calls at once may share it
  int64_t m, n, k;
  int64_t x_stride, y_stride;
  int64_t x_dtype, y_dtype;  // CORE_F32 or CORE_BF16
  int64_t format;
  int64_t threads;
};

CORE_API void core_cpu_gemm(const core_gemm_args* args);

// A product and the gated activation of its results: out (m, n / 2) = act(y's first half) * y's second half, as
// core_cpu_gated computes it from y as stored. y has room for core_cpu_gemm_gated_rows() rows; what it holds afterwards is
// not said. `n` is even.
struct core_gemm_gated_args {
  const void* x;
  const void* w;
  const int32_t* order;
  const float* bias;
  void* y;
  void* out;  // rows `out_stride` elements apart, of y's dtype
  void* workspace;
  int64_t m, n, k;
  int64_t x_stride, y_stride, out_stride;
  int64_t x_dtype, y_dtype;
  int64_t format;
  int64_t activation;  // enum core_activation
  int64_t threads;
};

CORE_API void core_cpu_gemm_gated(const core_gemm_gated_args* args);

// Rows of y that a call with these shapes and these or fewer rows writes; pointers are not looked at.
CORE_API int64_t core_cpu_gemm_gated_rows(const core_gemm_gated_args* args);

// Bytes of workspace that a call with these shapes and these or fewer rows needs; pointers are not looked at, except
// whether `order` is null.
CORE_API int64_t core_cpu_gemm_workspace(const core_gemm_args* args);

// How a call is cut: into pieces that are handed to threads one by one. Pointers of the product are not looked at, except
// whether `order` is null.
struct core_gemm_pieces_args {
  const core_gemm_args* product;
  int64_t* pieces;  // (room, 4): first row, behind the last, first panel, behind the last
  int64_t room;
};

// Returns the number of pieces, and writes as many of them as there is room for. Those of one thread's share follow
// each other; all shares have as many.
CORE_API int64_t core_cpu_gemm_pieces(const core_gemm_pieces_args* args);

// Bytes of a panel of this format with k inputs; CORE_GEMM_BY_ROW makes no difference.
CORE_API int64_t core_cpu_gemm_panel(int64_t format, int64_t k);

// Rows of a packed weight (n, k), decoded: an embedding that shares its storage with the output projection.
struct core_lookup_args {
  const void* w;
  const int64_t* ids;  // (count), not checked
  void* out;           // (count, k)
  int64_t count, k;
  int64_t out_dtype;  // CORE_F32 or CORE_BF16
  int64_t format;
  int64_t threads;
};

CORE_API void core_cpu_lookup(const core_lookup_args* args);
