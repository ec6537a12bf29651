#define CORE_VARIANT amx
#include "attention/entry_kernels.h"
