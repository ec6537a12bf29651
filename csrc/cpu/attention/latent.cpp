// Entries of latent attention: choice of the variant, size of the scratch memory.
#include "attention/latent.h"

#include "attention/latent_plan.h"
#include "common/cpu.h"

namespace core {

#define DECLARE(variant)                                     \
  namespace variant {                                        \
  void latent_attention(const core_latent_attention_args*);  \
  void latent_store(const core_latent_store_args*);          \
  void head_product(const core_head_product_args*);          \
  }
DECLARE(base)
DECLARE(avx2)
DECLARE(avx512)
DECLARE(avx512_bf16)
DECLARE(amx)
DECLARE(neon_bf16)
#undef DECLARE

static const Variants<void(const core_latent_attention_args*)> kLatent = {
    base::latent_attention, CORE_AVX2(avx2::latent_attention), CORE_AVX512(avx512::latent_attention),
    CORE_AVX512_BF16(avx512_bf16::latent_attention), CORE_AMX(amx::latent_attention),
    CORE_NEON_BF16(neon_bf16::latent_attention)};

static const Variants<void(const core_head_product_args*)> kProduct = {
    base::head_product, CORE_AVX2(avx2::head_product), CORE_AVX512(avx512::head_product)};

static const Variants<void(const core_latent_store_args*)> kStore = {
    base::latent_store, CORE_AVX2(avx2::latent_store), CORE_AVX512(avx512::latent_store)};

}  // namespace core

CORE_API void core_cpu_latent_attention(const core_latent_attention_args* args) { core::kLatent.pick()(args); }

CORE_API void core_cpu_head_product(const core_head_product_args* args) { core::kProduct.pick()(args); }

CORE_API void core_cpu_latent_store(const core_latent_store_args* args) { core::kStore.pick()(args); }

CORE_API int64_t core_cpu_head_product_scratch(const core_head_product_args* args) {
  int64_t floats = core::round_up(args->inputs, core::kVector) + core::round_up(args->outputs, core::kVector);
  return args->threads * core::kProductTokens * floats * 4;
}

CORE_API int64_t core_cpu_latent_attention_scratch(const core_latent_attention_args* args) {
  core::LatentSizes n = core::latent_sizes(*args);
  int64_t partials = core::most_partials(args->threads, 1);
  return args->threads * core::latent_thread_bytes(n, args->heads, args->picks) +
         partials * core::partial_floats(args->heads, n.latent) * 4;
}
