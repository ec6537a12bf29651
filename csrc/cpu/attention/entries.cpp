// Entries of attention to compressed entries: choice of the variant, size of the scratch memory.
#include "attention/entries.h"

#include "attention/latent_plan.h"
#include "common/cpu.h"

namespace core {

#define DECLARE(variant)                                   \
  namespace variant {                                      \
  void entry_attention(const core_entry_attention_args*);  \
  }
DECLARE(base)
DECLARE(avx2)
DECLARE(avx512)
DECLARE(avx512_bf16)
DECLARE(amx)
DECLARE(neon_bf16)
#undef DECLARE

static const Variants<void(const core_entry_attention_args*)> kEntries = {
    base::entry_attention, CORE_AVX2(avx2::entry_attention), CORE_AVX512(avx512::entry_attention),
    CORE_AVX512_BF16(avx512_bf16::entry_attention), CORE_AMX(amx::entry_attention),
    CORE_NEON_BF16(neon_bf16::entry_attention)};

}  // namespace core

CORE_API void core_cpu_entry_attention(const core_entry_attention_args* args) { core::kEntries.pick()(args); }

CORE_API int64_t core_cpu_entry_attention_scratch(const core_entry_attention_args* args) {
  core::LatentSizes n = {core::round_up(args->head_dim, core::kVector), 0, 0, 0};
  int64_t partials = core::most_partials(args->threads, 1);
  return args->threads * core::latent_thread_bytes(n, args->heads, args->picks) +
         partials * core::partial_floats(args->heads, n.latent) * 4;
}
