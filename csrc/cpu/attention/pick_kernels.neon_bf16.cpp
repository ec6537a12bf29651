#define CORE_VARIANT neon_bf16
#include "attention/pick_kernels.h"
