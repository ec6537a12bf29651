#define CORE_VARIANT amx
#include "attention/pick_kernels.h"
