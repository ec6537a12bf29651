#define CORE_VARIANT base
#include "gemm/quantized.h"
