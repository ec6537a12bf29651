#define CORE_VARIANT avx2
#include "attention/entry_kernels.h"
