#define CORE_VARIANT base
#include "elementwise/kernels.h"
