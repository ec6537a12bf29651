#define CORE_VARIANT avx2
#include "elementwise/kernels.h"
