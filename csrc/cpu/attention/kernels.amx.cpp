#define CORE_VARIANT amx
#include "attention/kernels.h"
