// Kernels that multiply in floating point. Included once per instruction set, with CORE_VARIANT set.
#include "gemm/groups.h"
#include "gemm/rows.h"
#if defined(__AVX512BF16__)
#include "gemm/expand.h"
#endif

namespace core {
namespace gemm {
namespace {

// Rows from which tiles ask for the next weights. To read weights takes longer than to multiply them with one tile's rows,
// and with two tiles' where an instruction multiplies bfloat16.
template <typename F>
constexpr int64_t kAskingRows = (sizeof(typename F::X) == 2 ? 2 : 1) * F::rows + 1;

// Tiles of one panel take panels in turn; few rows ask by themselves.
template <typename F>
constexpr int64_t kInTurn = F::panels == 1 ? kFewRows + 1 : 0;

template <typename F>
constexpr Kernel dense_kernel() {
  typedef typename F::X X;
  return {F::rows,      F::panels, usable<X, F::inputs>, converted_bytes<X>, convert_rows<X, F::round>,
          run_tile<F>,  nullptr,   nullptr,              nullptr,            nullptr,
          nullptr,      nullptr,   kAskingRows<F>,       kDepth * F::inputs, kInTurn<F>};
}

// Rounding to bf16 must also meet activations that are float32 already.
template <>
constexpr Kernel dense_kernel<WideBf16>() {
  return {WideBf16::rows,     WideBf16::panels, nullptr, converted_bytes<float>, convert_rows<float, true>,
          run_tile<WideBf16>, nullptr,          nullptr, nullptr, nullptr, nullptr,                nullptr,
          kAskingRows<WideBf16>, kDepth * WideBf16::inputs, kInTurn<WideBf16>};
}

// The kernel of `F` where so many times 32 inputs share a scale.
template <typename F, int64_t blocks>
constexpr Kernel group_kernel() {
  Kernel kernel = dense_kernel<F>();
  kernel.tile = run_groups<F, blocks>;
  kernel.depth = 0;
  return kernel;
}

// Of every format of floats, in their order; `F`: what float8 is multiplied as.
#define CORE_FLOAT_KERNELS(F)                                                                                    \
  {dense_kernel<F<E4m3>>(),           group_kernel<F<E4m3>, 4>(),         group_kernel<F<E4m3>, 1>(),            \
   group_kernel<WideTable<Nf4>, 2>(), group_kernel<WideTable<Fp4>, 2>(), dense_kernel<F<E5m2>>(),               \
   group_kernel<F<E5m2>, 4>(),        group_kernel<F<E5m2>, 1>()}

#if defined(__AVX512BF16__)
// Many rows: panels are widened to bf16 once for all of them.
constexpr Kernel widened(void (*expand)(const Call&, const Tile&, char*)) {
  return {Bf16::rows,     Bf16::panels, usable<bf16, Bf16::inputs>, converted_bytes<bf16>, convert_rows<bf16, false>,
          run_tile<Bf16>, nullptr,      nullptr,                    expanded_bytes<kWide>, expand,
          nullptr,        nullptr,      kAskingRows<Bf16>,          kDepth * Bf16::inputs};
}
#endif

}  // namespace

namespace CORE_VARIANT {
#if defined(__AVX512BF16__)
extern const Kernel bf16_kernel, w8a16_kernel;
const Kernel bf16_kernel = dense_kernel<Bf16>();
// int8 is exact in bf16.
const Kernel w8a16_kernel = widened(expand_int8);
extern const Kernel float_kernels[kFloatFormats], wide_float_kernels[kFloatFormats];
const Kernel float_kernels[kFloatFormats] = CORE_FLOAT_KERNELS(Bf16Float8);
const Kernel wide_float_kernels[kFloatFormats] = CORE_WIDE_FLOATS(widened, widened);
#else
extern const Kernel f32_kernel, bf16_kernel, w8a16_kernel;
const Kernel f32_kernel = dense_kernel<F32>();
const Kernel bf16_kernel = dense_kernel<WideBf16>();
const Kernel w8a16_kernel = dense_kernel<WideInt8>();
extern const Kernel float_kernels[kFloatFormats];
const Kernel float_kernels[kFloatFormats] = CORE_FLOAT_KERNELS(WideFloat8);
#endif
}  // namespace CORE_VARIANT
}  // namespace gemm
}  // namespace core
