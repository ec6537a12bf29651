#define CORE_VARIANT avx512_bf16
#include "elementwise/kernels.h"
