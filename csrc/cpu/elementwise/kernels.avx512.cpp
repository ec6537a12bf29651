#define CORE_VARIANT avx512
#include "elementwise/kernels.h"
