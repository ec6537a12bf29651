#define CORE_VARIANT avx512_bf16
#include "attention/latent_kernels.h"
