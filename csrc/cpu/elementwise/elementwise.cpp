// Entries of the element-wise kernels: choice of the variant.
#include "elementwise/elementwise.h"

#include "common/cpu.h"
#include "common/parallel.h"

namespace core {

#define DECLARE(variant)                            \
  namespace variant {                               \
  void rms_norm(const core_rms_norm_args*);         \
  void gated(const core_gated_args*);               \
  void layer_norm(const core_layer_norm_args*);     \
  void plain_activation(const core_activate_args*); \
  void rope_kv(const core_rope_kv_args*);           \
  }
DECLARE(base)
DECLARE(avx2)
DECLARE(avx512)
DECLARE(avx512_bf16)
#undef DECLARE

#define VARIANTS(f) \
  { f(base), CORE_AVX2(f(avx2)), CORE_AVX512(f(avx512)), CORE_AVX512_BF16(f(avx512_bf16)) }
#define RMS_NORM(variant) variant::rms_norm
#define GATED(variant) variant::gated
#define LAYER_NORM(variant) variant::layer_norm
#define ACTIVATE(variant) variant::plain_activation
#define ROPE_KV(variant) variant::rope_kv

static const Variants<void(const core_rms_norm_args*)> kRmsNorm = VARIANTS(RMS_NORM);
static const Variants<void(const core_gated_args*)> kGated = VARIANTS(GATED);
static const Variants<void(const core_layer_norm_args*)> kLayerNorm = VARIANTS(LAYER_NORM);
static const Variants<void(const core_activate_args*)> kActivate = VARIANTS(ACTIVATE);
static const Variants<void(const core_rope_kv_args*)> kRopeKv = VARIANTS(ROPE_KV);

}  // namespace core

CORE_API void core_cpu_rms_norm(const core_rms_norm_args* args) { core::kRmsNorm.pick()(args); }

CORE_API void core_cpu_layer_norm(const core_layer_norm_args* args) { core::kLayerNorm.pick()(args); }

CORE_API void core_cpu_activate(const core_activate_args* args) { core::kActivate.pick()(args); }

CORE_API void core_cpu_shift(const core_shift_args* args) {
  for (int64_t i = 0; i < args->count; ++i) args->out[i] = args->x[i] + args->amount;
}

CORE_API void core_cpu_gated(const core_gated_args* args) { core::kGated.pick()(args); }
CORE_API void core_cpu_rope_kv(const core_rope_kv_args* args) { core::kRopeKv.pick()(args); }

CORE_API void core_cpu_gather(const core_gather_args* args) {
  auto table = static_cast<const char*>(args->table);
  auto out = static_cast<char*>(args->out);
  int64_t grain = core::ceil_div(65536, args->row_bytes > 0 ? args->row_bytes : 1);
  core::parallel_for(args->count, args->threads, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(out + i * args->row_bytes, table + args->ids[i] * args->row_bytes,
                  static_cast<size_t>(args->row_bytes));
    }
  });
}
