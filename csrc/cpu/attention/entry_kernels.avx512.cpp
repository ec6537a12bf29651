#define CORE_VARIANT avx512
#include "attention/entry_kernels.h"
