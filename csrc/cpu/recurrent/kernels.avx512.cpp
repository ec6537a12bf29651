#define CORE_VARIANT avx512
#include "recurrent/kernels.h"
