#define CORE_VARIANT neon_bf16
#include "attention/entry_kernels.h"
