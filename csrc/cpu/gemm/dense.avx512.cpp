#define CORE_VARIANT avx512
#include "gemm/dense.h"
