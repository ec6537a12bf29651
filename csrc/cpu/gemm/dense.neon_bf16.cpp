// bfloat16 by two extensions of ARMv8.6: the dot product of pairs for few rows, matrices for more.
#define CORE_VARIANT neon_bf16_wide
#include "gemm/dense.h"
#include "gemm/matrix.h"

namespace core {
namespace gemm {
namespace {

struct Pairs {
  typedef bf16 X;
  static constexpr int inputs = 2, rows = kRows, panels = kWide;
  static constexpr bool round = false;
  static constexpr float scale = 1.0f;
  template <int M>
  CORE_INLINE static void line(vf (*acc)[kVecs], int64_t next, const char* w, const char* x, int64_t row_bytes) {
    for (int v = 0; v < kVecs; ++v) {
      auto weights = (bfloat16x8_t)load_bits(w + v * kVecBytes);
      for (int i = 0; i < M; ++i) {
        uint32_t pair;
        std::memcpy(&pair, x + i * row_bytes, 4);
        acc[i * next][v] = (vf)vbfdotq_f32((float32x4_t)acc[i * next][v], weights, (bfloat16x8_t)splat_bits(pair));
      }
    }
  }
};

struct Matrices {
  typedef vf Sums;
  static constexpr int64_t inputs = 4, header = 0;
  CORE_INLINE static vf add(vf sums, vu rows, vu channels) {
    return (vf)vbfmmlaq_f32((float32x4_t)sums, (bfloat16x8_t)rows, (bfloat16x8_t)channels);
  }
  CORE_INLINE static vf result(vf sums, const char*) { return sums; }
};

}  // namespace

namespace neon_bf16 {
extern const Kernel dot_kernel, matrix_kernel;
const Kernel dot_kernel = dense_kernel<Pairs>();
const Kernel matrix_kernel = {
    kMatrixRows, 1,       usable<bf16, Matrices::inputs>, converted_bytes<bf16>,
    convert_rows<bf16, false>, run_matrix_tile<Matrices>, nullptr, nullptr,
    nullptr,     nullptr, nullptr,                        nullptr};
}  // namespace neon_bf16
}  // namespace gemm
}  // namespace core
