#define CORE_VARIANT avx2
#include "gemm/dense.h"
