#define CORE_VARIANT avx2
#include "map/kernels.h"
