#define CORE_VARIANT neon_dot
#include "gemm/quantized.h"
