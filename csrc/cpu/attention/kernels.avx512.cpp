#define CORE_VARIANT avx512
#include "attention/kernels.h"
