#define CORE_VARIANT base
#include "attention/kernels.h"
