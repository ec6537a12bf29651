// int8 by the matrix instruction of ARMv8.6, for several rows; they are prepared as for the dot product.
#define CORE_VARIANT neon_i8mm_dot
#include "gemm/int8.h"
#include "gemm/matrix.h"

namespace core {
namespace gemm {
namespace {

struct Matrices {
  typedef vi Sums;
  static constexpr int64_t inputs = 8, header = kHeader;
  CORE_INLINE static vi add(vi sums, vu rows, vu channels) {
    return (vi)vmmlaq_s32((int32x4_t)sums, (int8x16_t)rows, (int8x16_t)channels);
  }
  CORE_INLINE static vf result(vi sums, const char* x) {
    return __builtin_convertvector(sums, vf) * *reinterpret_cast<const float*>(x);
  }
};

}  // namespace

namespace neon_i8mm {
extern const Kernel matrix_kernel;
const Kernel matrix_kernel = {kMatrixRows, 1,       nullptr, quantized_bytes, quantize_rows, run_matrix_tile<Matrices>,
                              nullptr,     nullptr, nullptr, nullptr,         nullptr,       nullptr};
}  // namespace neon_i8mm
}  // namespace gemm
}  // namespace core
