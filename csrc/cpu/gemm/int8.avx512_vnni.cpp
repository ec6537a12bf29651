#define CORE_VARIANT avx512_vnni
#include "gemm/int8.h"
