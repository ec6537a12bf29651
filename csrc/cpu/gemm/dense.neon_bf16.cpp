// bfloat16 by the dot product of pairs of ARMv8.6.
#define CORE_VARIANT neon_bf16_wide
#include "gemm/dense.h"

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

}  // namespace

namespace neon_bf16 {
extern const Kernel dot_kernel;
const Kernel dot_kernel = dense_kernel<Pairs>();
}  // namespace neon_bf16
}  // namespace gemm
}  // namespace core
