#define CORE_VARIANT avx2
#include "attention/kernels.h"
