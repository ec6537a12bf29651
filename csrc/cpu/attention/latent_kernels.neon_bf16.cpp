#define CORE_VARIANT neon_bf16
#include "attention/latent_kernels.h"
