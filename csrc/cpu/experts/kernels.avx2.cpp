#define CORE_VARIANT avx2
#include "experts/kernels.h"
