#define CORE_VARIANT base
#include "sampling/kernels.h"
