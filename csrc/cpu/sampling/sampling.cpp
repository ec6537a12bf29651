// Entries of the sampling kernels: choice of the variant.
#include "sampling/sampling.h"

#include "common/cpu.h"

namespace core {

#define DECLARE(variant)                 \
  namespace variant {                    \
  void argmax(const core_argmax_args*);  \
  void draw(const core_draw_args*);      \
  }
DECLARE(base)
DECLARE(avx2)
DECLARE(avx512)
#undef DECLARE

static const Variants<void(const core_argmax_args*)> kArgmax = {
    base::argmax, CORE_AVX2(avx2::argmax), CORE_AVX512(avx512::argmax)};
static const Variants<void(const core_draw_args*)> kDraw = {
    base::draw, CORE_AVX2(avx2::draw), CORE_AVX512(avx512::draw)};

}  // namespace core

CORE_API void core_cpu_argmax(const core_argmax_args* args) { core::kArgmax.pick()(args); }
CORE_API void core_cpu_draw(const core_draw_args* args) { core::kDraw.pick()(args); }
