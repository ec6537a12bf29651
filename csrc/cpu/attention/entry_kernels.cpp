#define CORE_VARIANT base
#include "attention/entry_kernels.h"
