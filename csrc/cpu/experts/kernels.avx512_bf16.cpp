#define CORE_VARIANT avx512_bf16
#include "experts/kernels.h"
