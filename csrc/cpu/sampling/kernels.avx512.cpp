#define CORE_VARIANT avx512
#include "sampling/kernels.h"
