#define CORE_VARIANT base
#include "gemm/finish_body.h"

#include "common/cpu.h"
#include "gemm/finish.h"

namespace core {
namespace gemm {
namespace avx2 {
Finish finish;
}
namespace avx512 {
Finish finish;
}
namespace avx512_bf16 {
Finish finish;
}

Finish* finish() {
  static const Variants<Finish> variants = {base::finish, CORE_AVX2(avx2::finish), CORE_AVX512(avx512::finish),
                                            CORE_AVX512_BF16(avx512_bf16::finish)};
  return variants.pick();
}

}  // namespace gemm
}  // namespace core
