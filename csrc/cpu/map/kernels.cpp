#define CORE_VARIANT base
#include "map/kernels.h"
