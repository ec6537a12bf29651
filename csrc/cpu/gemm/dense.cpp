#define CORE_VARIANT base
#include "gemm/dense.h"
