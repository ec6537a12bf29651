// Which kernel serves which call.
#include "common/cpu.h"
#include "gemm/kernel.h"

namespace core {
namespace gemm {

namespace base {
extern const Kernel f32_kernel, bf16_kernel, w8a16_kernel, w8a8_kernel, float_kernels[kFloatFormats];
extern const Kernel block_kernels[kBlockFormats], fine_block_kernels[kBlockFormats];
}
namespace avx2 {
extern const Kernel f32_kernel, bf16_kernel, w8a16_kernel, w8a8_kernel, float_kernels[kFloatFormats];
extern const Kernel block_kernels[kBlockFormats], fine_block_kernels[kBlockFormats];
}
namespace avx_vnni {
extern const Kernel w8a8_kernel, block_kernels[kBlockFormats], fine_block_kernels[kBlockFormats];
}
namespace avx512 {
extern const Kernel f32_kernel, bf16_kernel, w8a16_kernel, w8a8_kernel, float_kernels[kFloatFormats];
extern const Kernel block_kernels[kBlockFormats], fine_block_kernels[kBlockFormats];
}
namespace avx512_vnni {
extern const Kernel w8a8_kernel, block_kernels[kBlockFormats], fine_block_kernels[kBlockFormats];
}
namespace avx512_bf16 {
extern const Kernel bf16_kernel, w8a16_kernel;
extern const Kernel float_kernels[kFloatFormats], wide_float_kernels[kFloatFormats];
}
namespace neon_dot {
extern const Kernel w8a8_kernel, block_kernels[kBlockFormats], fine_block_kernels[kBlockFormats];
}
namespace neon_bf16 {
extern const Kernel dot_kernel, matrix_kernel;
}
namespace neon_i8mm {
extern const Kernel matrix_kernel;
}
namespace amx {
extern const Kernel bf16_kernel, w8a16_kernel, w8a8_kernel, wide_float_kernels[kFloatFormats];
extern const Kernel fine_block_kernels[kBlockFormats], wide_block_kernels[kBlockFormats];
}  // namespace amx

namespace {

typedef Variants<const Kernel> Levels;

constexpr Levels kF32 = {&base::f32_kernel, CORE_AVX2(&avx2::f32_kernel), CORE_AVX512(&avx512::f32_kernel)};
constexpr Levels kBf16 = {&base::bf16_kernel,
                          CORE_AVX2(&avx2::bf16_kernel),
                          CORE_AVX512(&avx512::bf16_kernel),
                          CORE_AVX512_BF16(&avx512_bf16::bf16_kernel),
                          CORE_AMX(&amx::bf16_kernel),
                          CORE_NEON_BF16(&neon_bf16::dot_kernel)};
constexpr Levels kW8A8 = {&base::w8a8_kernel,
                          CORE_AVX2(&avx2::w8a8_kernel),
                          CORE_AVX_VNNI(&avx_vnni::w8a8_kernel),
                          CORE_AVX512(&avx512::w8a8_kernel),
                          CORE_AVX512_VNNI(&avx512_vnni::w8a8_kernel),
                          CORE_AMX(&amx::w8a8_kernel),
                          CORE_NEON_DOT(&neon_dot::w8a8_kernel)};
constexpr Levels kW8A16 = {&base::w8a16_kernel,
                           CORE_AVX2(&avx2::w8a16_kernel),
                           CORE_AVX512(&avx512::w8a16_kernel),
                           CORE_AVX512_BF16(&avx512_bf16::w8a16_kernel),
                           CORE_AMX(&amx::w8a16_kernel)};
constexpr Levels kBlocks = {base::block_kernels,
                            CORE_AVX2(avx2::block_kernels),
                            CORE_AVX_VNNI(avx_vnni::block_kernels),
                            CORE_AVX512(avx512::block_kernels),
                            CORE_AVX512_VNNI(avx512_vnni::block_kernels),
                            CORE_NEON_DOT(neon_dot::block_kernels)};
constexpr Levels kFineBlocks = {base::fine_block_kernels,
                                CORE_AVX2(avx2::fine_block_kernels),
                                CORE_AVX_VNNI(avx_vnni::fine_block_kernels),
                                CORE_AVX512(avx512::fine_block_kernels),
                                CORE_AVX512_VNNI(avx512_vnni::fine_block_kernels),
                                CORE_AMX(amx::fine_block_kernels),
                                CORE_NEON_DOT(neon_dot::fine_block_kernels)};
constexpr Levels kWideBlocks = {nullptr, CORE_AMX(amx::wide_block_kernels)};

constexpr Levels kFloats = {base::float_kernels, CORE_AVX2(avx2::float_kernels), CORE_AVX512(avx512::float_kernels),
                            CORE_AVX512_BF16(avx512_bf16::float_kernels)};
constexpr Levels kWideFloats = {base::float_kernels,
                                CORE_AVX2(avx2::float_kernels),
                                CORE_AVX512(avx512::float_kernels),
                                CORE_AVX512_BF16(avx512_bf16::wide_float_kernels),
                                CORE_AMX(amx::wide_float_kernels)};
constexpr Levels kMatrices = {nullptr, CORE_NEON_BF16(&neon_bf16::matrix_kernel)};
constexpr Levels kByteMatrices = {nullptr, CORE_NEON_I8MM(&neon_i8mm::matrix_kernel)};

// Rows from which a kernel is faster than the one of the level below, none beyond kLastChange.
constexpr int64_t kTileRows = 2;         // AMX: a tile that is mostly empty still beats two rows of vectors
constexpr int64_t kExpandRows = 8;       // widening bytes to bf16 pays
constexpr int64_t kBlockRows = 5;        // AMX: spreading blocks to bytes pays
constexpr int64_t kWideRows = 17;        // AMX: widening blocks to bf16 pays, where results may depend on the rows,
constexpr int64_t kCoarseWideRows = 32;  // instead of integers of 15 bits, or of 8
constexpr int64_t kCoarseRows = 5;       // without AMX: integers of 15 bits take noticeably longer than those of 8,
constexpr int64_t kSlowCoarseRows = 2;   // and where there are no dot products of bytes
constexpr int64_t kPairedRows = 4;       // ARM: fewer instructions than dot products, interleaving included; not measured

const Kernel* pick(const Levels& levels, Isa most) {
  return levels.pick(isa() < most || isa() > Isa::amx ? isa() : most);  // `most` speaks of x86 only
}

// ARM's matrix instructions, where they are there and there are rows enough for them; or null.
const Kernel* pick_matrices(const core_gemm_args& args) {
  if (args.m < kPairedRows) return nullptr;
  int64_t format = format_of(args.format);
  if (format == CORE_GEMM_BF16) return kMatrices.pick();
  return format == CORE_GEMM_W8A8 ? kByteMatrices.pick() : nullptr;
}

// Rows from which activations are rounded to 8 bits, unless it is said to how many.
int64_t coarse_rows() {
  if (kWideBlocks.own(isa()) != nullptr) return INT64_MAX;
  bool dots = isa() == Isa::avx_vnni || isa() >= Isa::avx512_vnni;
  return dots ? kCoarseRows : kSlowCoarseRows;
}

// With AMX integers of 15 bits, then widened; without it integers of 15 bits, then of 8.
const Kernel* pick_blocks(const core_gemm_args& args) {
  const Kernel* wide = kWideBlocks.own(isa());
  bool by_row = (args.format & CORE_GEMM_BY_ROW) != 0, coarse = (args.format & CORE_GEMM_COARSE) != 0;
  if (wide != nullptr && !by_row && args.m >= (coarse ? kCoarseWideRows : kWideRows)) return wide;
  bool said = by_row || (args.format & CORE_GEMM_FINE) != 0;
  if (coarse || (!said && args.m >= coarse_rows())) return pick(kBlocks, Isa::avx512_bf16);
  return pick(kFineBlocks, args.m >= kBlockRows ? Isa::amx : Isa::avx512_bf16);
}

// As int8 weights: float32 activations are not rounded to bf16. Codes of tables are widened for tiles alone: without them
// products of float32 take less time.
const Kernel* pick_floats(const core_gemm_args& args) {
  if (args.x_dtype != CORE_BF16) return pick(kFloats, Isa::avx512_vnni);
  int64_t format = format_of(args.format);
  bool table = format == CORE_GEMM_NF4 || format == CORE_GEMM_FP4;
  bool wide = args.m >= kExpandRows && (!table || isa() == Isa::amx);
  return wide ? pick(kWideFloats, Isa::amx) : pick(kFloats, Isa::avx512_bf16);
}

}  // namespace

const Kernel& select(const core_gemm_args& args) {
  if (const Kernel* matrices = pick_matrices(args)) return *matrices;
  Isa most = args.m >= kTileRows ? Isa::amx : Isa::avx512_bf16;
  switch (format_of(args.format)) {
    case CORE_GEMM_F32:
      return *pick(kF32, most);
    case CORE_GEMM_BF16:
      return *pick(kBf16, most);
    case CORE_GEMM_W8A8:
      return *pick(kW8A8, most);
    case CORE_GEMM_W8A16:
      // Float32 activations are not rounded to bf16 only because they are many.
      return *pick(kW8A16, args.x_dtype == CORE_BF16 && args.m >= kExpandRows ? Isa::amx : Isa::avx512_vnni);
    case CORE_GEMM_E4M3:
    case CORE_GEMM_E4M3_128:
    case CORE_GEMM_E4M3_32:
    case CORE_GEMM_NF4:
    case CORE_GEMM_FP4:
    case CORE_GEMM_E5M2:
    case CORE_GEMM_E5M2_128:
    case CORE_GEMM_E5M2_32:
      return pick_floats(args)[format_of(args.format) - CORE_GEMM_E4M3];
    default:
      return pick_blocks(args)[format_of(args.format) - CORE_GEMM_Q4_0];
  }
}

}  // namespace gemm
}  // namespace core
