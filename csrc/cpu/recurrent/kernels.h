// Recurrences for the instruction set of the including file, in namespace core::CORE_VARIANT.
#include "recurrent/conv.h"
#include "recurrent/linear.h"
#include "recurrent/scan.h"

namespace core {
namespace CORE_VARIANT {

void causal_conv(const core_causal_conv_args* a) {
  a->dtype == CORE_BF16 ? causal_conv<bf16>(*a) : causal_conv<float>(*a);
}

void linear_attention(const core_linear_attention_args* a) {
  a->dtype == CORE_BF16 ? linear_attention<bf16>(*a) : linear_attention<float>(*a);
}

void selective_scan(const core_selective_scan_args* a) {
  a->dtype == CORE_BF16 ? selective_scan<bf16>(*a) : selective_scan<float>(*a);
}

void gated_recurrence(const core_gated_recurrence_args* a) {
  a->dtype == CORE_BF16 ? gated_recurrence<bf16>(*a) : gated_recurrence<float>(*a);
}

}  // namespace CORE_VARIANT
}  // namespace core
