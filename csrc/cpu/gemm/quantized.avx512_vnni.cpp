#define CORE_VARIANT avx512_vnni
#include "gemm/quantized.h"
