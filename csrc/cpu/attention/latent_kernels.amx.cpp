#define CORE_VARIANT amx
#include "attention/latent_kernels.h"
