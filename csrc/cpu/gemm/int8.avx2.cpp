#define CORE_VARIANT avx2
#include "gemm/int8.h"
