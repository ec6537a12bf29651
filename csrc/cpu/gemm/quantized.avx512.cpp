#define CORE_VARIANT avx512
#include "gemm/quantized.h"
