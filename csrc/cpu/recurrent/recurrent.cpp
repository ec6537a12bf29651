// Entries of this folder: choice of the variants.
#include "recurrent/recurrent.h"

#include "common/cpu.h"

namespace core {

#define CORE_RECURRENT(variant)                                \
  namespace variant {                                          \
  void causal_conv(const core_causal_conv_args*);              \
  void linear_attention(const core_linear_attention_args*);    \
  void selective_scan(const core_selective_scan_args*);        \
  void gated_recurrence(const core_gated_recurrence_args*);    \
  }
CORE_RECURRENT(base)
CORE_RECURRENT(avx2)
CORE_RECURRENT(avx512)
CORE_RECURRENT(avx512_bf16)
#undef CORE_RECURRENT

#define CORE_ALL(f) \
  {base::f, CORE_AVX2(avx2::f), CORE_AVX512(avx512::f), CORE_AVX512_BF16(avx512_bf16::f)}

static const Variants<void(const core_causal_conv_args*)> kConv = CORE_ALL(causal_conv);
static const Variants<void(const core_linear_attention_args*)> kAttention = CORE_ALL(linear_attention);
static const Variants<void(const core_selective_scan_args*)> kScan = CORE_ALL(selective_scan);
static const Variants<void(const core_gated_recurrence_args*)> kGated = CORE_ALL(gated_recurrence);
#undef CORE_ALL

}  // namespace core

CORE_API void core_cpu_causal_conv(const core_causal_conv_args* args) { core::kConv.pick()(args); }
CORE_API void core_cpu_linear_attention(const core_linear_attention_args* args) { core::kAttention.pick()(args); }
CORE_API void core_cpu_selective_scan(const core_selective_scan_args* args) { core::kScan.pick()(args); }
CORE_API void core_cpu_gated_recurrence(const core_gated_recurrence_args* args) { core::kGated.pick()(args); }
