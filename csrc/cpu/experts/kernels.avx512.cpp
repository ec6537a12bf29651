#define CORE_VARIANT avx512
#include "experts/kernels.h"
