#define CORE_VARIANT avx2
#include "recurrent/kernels.h"
