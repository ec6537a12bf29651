#define CORE_VARIANT avx512_bf16
#include "attention/pick_kernels.h"
