#define CORE_VARIANT base
#include "gemm/int8.h"
