// Entries of paged attention: choice of the variant, size of the scratch memory.
#include "attention/attention.h"

#include "attention/encode.h"
#include "attention/plan.h"
#include "common/cpu.h"

namespace core {

#define DECLARE(variant)                         \
  namespace variant {                            \
  void attention(const core_attention_args*);    \
  void store_kv(const core_store_kv_args*);      \
  void encode(const core_encode_args*);          \
  }
DECLARE(base)
DECLARE(avx2)
DECLARE(avx512)
DECLARE(avx512_bf16)
DECLARE(amx)
DECLARE(neon_bf16)
#undef DECLARE

static const Variants<void(const core_attention_args*)> kAttention = {
    base::attention, CORE_AVX2(avx2::attention), CORE_AVX512(avx512::attention),
    CORE_AVX512_BF16(avx512_bf16::attention), CORE_AMX(amx::attention), CORE_NEON_BF16(neon_bf16::attention)};

static const Variants<void(const core_encode_args*)> kEncode = {
    base::encode, CORE_AVX2(avx2::encode), CORE_AVX512(avx512::encode),
    CORE_AVX512_BF16(avx512_bf16::encode), CORE_AMX(amx::encode), CORE_NEON_BF16(neon_bf16::encode)};

static const Variants<void(const core_store_kv_args*)> kStore = {
    base::store_kv, CORE_AVX2(avx2::store_kv), CORE_AVX512(avx512::store_kv)};

}  // namespace core

CORE_API void core_cpu_attention(const core_attention_args* args) { core::kAttention.pick()(args); }

CORE_API void core_cpu_store_kv(const core_store_kv_args* args) { core::kStore.pick()(args); }

CORE_API void core_cpu_encode(const core_encode_args* args) { core::kEncode.pick()(args); }

CORE_API int64_t core_cpu_encode_scratch(const core_encode_args* args) {
  int64_t group = args->heads / args->kv_heads, rows = group > core::kMostTileRows ? group : core::kMostTileRows;
  return args->threads * core::encoder_bytes(rows, core::round_up(args->head_dim, 32), core::kTileKeys);
}

CORE_API int64_t core_cpu_attention_scratch(const core_attention_args* args) {
  core::Plan plan = core::make_plan(*args, 1, core::kMostTileRows, core::kTileKeys);
  int64_t tall = core::tile_layout(plan.tile_rows, args->head_dim, args->head_dim, core::kTileKeys).bytes;
  int64_t group = plan.group > core::kLongTileRows ? plan.group : core::kLongTileRows;
  int64_t wide = core::tile_layout(group, args->head_dim, args->head_dim, core::kLongPass).bytes;
  int64_t partials = core::most_partials(args->threads, args->kv_heads);
  return args->threads * (tall > wide ? tall : wide) +
         partials * core::partial_floats(plan.group, args->head_dim) * 4;
}
