#define CORE_VARIANT avx_vnni
#include "gemm/quantized.h"
