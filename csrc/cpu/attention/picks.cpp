// Entries of picked positions: choice of the variant, size of the scratch memory.
#include "attention/picks.h"

#include "attention/pick_plan.h"
#include "common/cpu.h"

namespace core {

#define DECLARE(variant)             \
  namespace variant {                \
  void pick(const core_pick_args*);  \
  }
DECLARE(base)
DECLARE(avx2)
DECLARE(avx512)
DECLARE(avx512_bf16)
DECLARE(amx)
DECLARE(neon_bf16)
#undef DECLARE

static const Variants<void(const core_pick_args*)> kPick = {
    base::pick, CORE_AVX2(avx2::pick), CORE_AVX512(avx512::pick), CORE_AVX512_BF16(avx512_bf16::pick),
    CORE_AMX(amx::pick), CORE_NEON_BF16(neon_bf16::pick)};

}  // namespace core

CORE_API void core_cpu_pick(const core_pick_args* args) { core::kPick.pick()(args); }

CORE_API int64_t core_cpu_pick_scratch(const core_pick_args* args) {
  int64_t partials = core::most_partials(args->threads, 1);
  return args->threads * core::pick_layout(*args).bytes + partials * core::pick_partial_bytes(args->picks);
}
