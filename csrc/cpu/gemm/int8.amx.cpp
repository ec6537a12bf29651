// int8 weights and int8 activations by AMX tiles: 16 rows by 16 channels by 64 inputs an instruction.
#include "gemm/integers.h"
#include "gemm/tiles.h"

namespace core {
namespace gemm {
namespace {

constexpr int64_t kStep = 64;  // inputs of a tile

// After the tiles of 16 rows come their scales.
int64_t packed_bytes(const core_gemm_args& args) { return padded_inputs(args) + 64; }

const float* scales_of(const Call& call, int64_t row) {
  const char* group = call.rows + row / 16 * 16 * call.row_bytes;
  return reinterpret_cast<const float*>(group + 16 * call.inputs) + row % 16;
}

template <typename From>
void pack_row(const Call& call, const From* from, int64_t row) {
  float scale = row_scale(from, call.args->k);
  Divisor by{scale, 1.0f / scale};
  *const_cast<float*>(scales_of(call, row)) = scale;
  char* to = const_cast<char*>(call.rows) + row / 16 * 16 * call.row_bytes + row % 16 * 64;
  for (int64_t i = 0; i < call.inputs; i += kLanes) {
    store_bytes(quantize_lanes(from + i, call.args->k - i, by), to + i / kStep * kTileBytes + i % kStep);
  }
}

void pack_rows(const Call& call, int64_t begin, int64_t end) {
  const core_gemm_args& args = *call.args;
  for (int64_t row = begin; row < end; ++row) {
    if (args.x_dtype == CORE_F32) {
      pack_row(call, static_cast<const float*>(args.x) + row * args.x_stride, row);
    } else {
      pack_row(call, static_cast<const bf16*>(args.x) + row * args.x_stride, row);
    }
  }
}

void tile(const Call& call, const Tile& where, const char*, float* out) {
  bool once = call.args->m <= kFewRows;
  multiply<true>(call, where, panel_of(call, where.panel), call.panel_bytes, call.inputs / kStep, once, out);
  for (int64_t row = 0; row < where.rows; ++row) {
    vf scale = splat(*scales_of(call, where.row + row));
    for (int64_t i = 0; i < kWide * kPanel; i += kLanes) {
      float* at = out + row * kWide * kPanel + i;
      store(at, __builtin_convertvector(reinterpret_cast<vi>(load_bits(at)), vf) * scale);
    }
  }
}

}  // namespace

namespace amx {
extern const Kernel w8a8_kernel;
const Kernel w8a8_kernel = {32, kWide, nullptr, packed_bytes, pack_rows, tile, nullptr, nullptr, enter, leave};
}  // namespace amx
}  // namespace gemm
}  // namespace core
