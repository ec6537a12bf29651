#define CORE_VARIANT base
#include "experts/kernels.h"
