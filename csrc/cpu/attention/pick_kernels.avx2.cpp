#define CORE_VARIANT avx2
#include "attention/pick_kernels.h"
