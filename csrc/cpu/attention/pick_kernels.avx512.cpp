#define CORE_VARIANT avx512
#include "attention/pick_kernels.h"
