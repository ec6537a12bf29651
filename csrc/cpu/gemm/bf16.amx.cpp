// bfloat16 by AMX tiles; also for weights of other formats, whose panels are widened to bf16 first.
#include "gemm/expand.h"
#include "gemm/rows.h"
#include "gemm/stripe.h"
#include "gemm/widen.h"

namespace core {
namespace gemm {
namespace {

template <typename From>
void pack_row(const From* from, char* to, int64_t count, int64_t padded) {
  for (int64_t i = 0; i < padded; i += kBlock) {
    int64_t here = count - i < kBlock ? (count > i ? count - i : 0) : kBlock;
    convert_row<bf16, false>(from + i, reinterpret_cast<bf16*>(to + i / kBlock * kTileBytes), here, kBlock);
  }
}

void pack_rows(const Call& call, int64_t begin, int64_t end) {
  const core_gemm_args& args = *call.args;
  for (int64_t row = begin; row < end; ++row) {
    char* to = const_cast<char*>(call.rows) + row / 16 * 16 * call.row_bytes + row % 16 * 64;
    if (args.x_dtype == CORE_F32) {
      pack_row(static_cast<const float*>(args.x) + row * args.x_stride, to, args.k, call.inputs);
    } else {
      pack_row(static_cast<const bf16*>(args.x) + row * args.x_stride, to, args.k, call.inputs);
    }
  }
}

void tile(const Call& call, const Tile& where, const char* scratch, float* out) {
  int64_t panel_bytes = call.inputs * 2 * kPanel;  // of bf16, whatever the panel was widened from
  const char* w = scratch != nullptr ? scratch : panel_of(call, where.panel);
  bool once = scratch == nullptr && call.args->m <= kFewRows;
  multiply<false>(call, where, w, panel_bytes, call.inputs / kBlock, once, out);
}

int64_t stripe(const Call& call, const Tile& where, int64_t row_end, const char* scratch) {
  const char* w = scratch != nullptr ? scratch : panel_of(call, where.panel);
  return run_stripe<false>(call, where, row_end, w, call.inputs * 2 * kPanel, call.inputs / kBlock);
}

void gated(const Call& call, const Tile& where, int64_t row_end, const Gating& gating) {
  run_gated<false>(call, where, row_end, gating, call.inputs / kBlock);
}

typedef void Expand(const Call& call, const Tile& tile, char* scratch);

constexpr Kernel widening(Expand* expand) {
  return {32,     kWide,   nullptr, converted_bytes<bf16>, pack_rows, tile,
          stripe, nullptr, expanded_bytes<kWide>,          expand,    enter, leave};
}

// Without a stripe: channels have scales, which a stripe of bf16 does not apply.
constexpr Kernel widening_channels(Expand* expand) {
  Kernel kernel = widening(expand);
  kernel.stripe = nullptr;
  return kernel;
}

template <typename F>
constexpr Kernel widening_blocks() {
  return F::kind == Scales::floats ? widening_channels(widen_blocks<F>) : widening(widen_blocks<F>);
}

}  // namespace

namespace amx {
extern const Kernel bf16_kernel, w8a16_kernel, wide_block_kernels[kBlockFormats];
const Kernel bf16_kernel = {32,     kWide, nullptr, converted_bytes<bf16>, pack_rows, tile,
                            stripe, gated, nullptr, nullptr,               enter,     leave};
const Kernel w8a16_kernel = widening_channels(expand_int8);
extern const Kernel wide_float_kernels[kFloatFormats];
const Kernel wide_float_kernels[kFloatFormats] = CORE_WIDE_FLOATS(widening_channels, widening);
const Kernel wide_block_kernels[kBlockFormats] = CORE_BLOCK_FORMATS(widening_blocks);
}  // namespace amx
}  // namespace gemm
}  // namespace core
