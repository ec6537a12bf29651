#define CORE_VARIANT neon_dot
#include "gemm/int8.h"
