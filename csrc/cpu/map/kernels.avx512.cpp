#define CORE_VARIANT avx512
#include "map/kernels.h"
