#define CORE_VARIANT avx512_bf16
#include "recurrent/kernels.h"
