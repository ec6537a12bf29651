#define CORE_VARIANT base
#include "recurrent/kernels.h"
