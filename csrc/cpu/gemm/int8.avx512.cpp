#define CORE_VARIANT avx512
#include "gemm/int8.h"
