#define CORE_VARIANT avx2
#include "sampling/kernels.h"
