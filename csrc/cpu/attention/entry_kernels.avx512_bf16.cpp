#define CORE_VARIANT avx512_bf16
#include "attention/entry_kernels.h"
