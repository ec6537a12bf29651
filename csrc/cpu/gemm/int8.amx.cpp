// int8 weights and int8 activations by AMX tiles: 16 rows by 16 channels by 64 inputs an instruction.
#include "gemm/integers.h"
#include "gemm/stripe.h"

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

// The largest magnitude of a row, whose bits without the sign are in the order of the values.
float largest_of(const bf16* from, int64_t count) {
  __m512i most = _mm512_setzero_si512();
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
  for (int64_t i = 0; i < count; i += 32) {
    __mmask32 here = count - i >= 32 ? ~0u : (1u << (count - i)) - 1;
    __m512i values = _mm512_maskz_loadu_epi16(here, from + i);
    most = _mm512_max_epu16(most, _mm512_and_si512(values, magnitude));
  }
  uint16_t bits[32], largest = 0;
  _mm512_storeu_si512(bits, most);
  for (uint16_t one : bits) largest = one > largest ? one : largest;
  return to_float(bf16{largest});
}

float scale_of_row(const bf16* from, int64_t count) {
  float largest = largest_of(from, count);
  return largest == 0.0f ? 1.0f : largest / 127.0f;
}
float scale_of_row(const float* from, int64_t count) { return row_scale(from, count); }

template <typename From>
CORE_INLINE __m512i rounded(const From* from, int64_t count, const Divisor& by) {
  return _mm512_cvtps_epi32((__m512)divide(load_upto(from, count), by.scale, by.inverse));
}

// 64 inputs of a row, one line of a tile.
template <typename From>
CORE_INLINE void pack_line(const From* from, int64_t count, const Divisor& by, char* to) {
  __m512i first = _mm512_packs_epi32(rounded(from, count, by), rounded(from + 16, count - 16, by));
  __m512i second = _mm512_packs_epi32(rounded(from + 32, count - 32, by), rounded(from + 48, count - 48, by));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_store_si512(to, _mm512_permutexvar_epi32(order, _mm512_packs_epi16(first, second)));
}

template <typename From>
void pack_row(const Call& call, const From* from, int64_t row) {
  float scale = scale_of_row(from, call.args->k);
  Divisor by{scale, 1.0f / scale};
  *const_cast<float*>(scales_of(call, row)) = scale;
  char* to = const_cast<char*>(call.rows) + row / 16 * 16 * call.row_bytes + row % 16 * 64;
  int64_t whole = call.args->k / kStep * kStep;
  for (int64_t i = 0; i < whole; i += kStep, to += kTileBytes) pack_line(from + i, kStep, by, to);
  if (whole < call.inputs) pack_line(from + whole, call.args->k - whole, by, to);
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

int64_t stripe(const Call& call, const Tile& where, int64_t row_end, const char*) {
  const char* w = panel_of(call, where.panel);
  return run_stripe<true>(call, where, row_end, w, call.panel_bytes, call.inputs / kStep);
}

void gated(const Call& call, const Tile& where, int64_t row_end, const Gating& gating) {
  run_gated<true>(call, where, row_end, gating, call.inputs / kStep);
}

}  // namespace

namespace amx {
extern const Kernel w8a8_kernel;
const Kernel w8a8_kernel = {32,     kWide, nullptr, packed_bytes, pack_rows, tile,
                            stripe, gated, nullptr, nullptr,      enter,     leave};
}  // namespace amx
}  // namespace gemm
}  // namespace core
