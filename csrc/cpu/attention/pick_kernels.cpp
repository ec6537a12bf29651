#define CORE_VARIANT base
#include "attention/pick_kernels.h"
