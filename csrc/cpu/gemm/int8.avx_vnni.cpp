#define CORE_VARIANT avx_vnni
#include "gemm/int8.h"
