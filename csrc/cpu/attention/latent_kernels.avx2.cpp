#define CORE_VARIANT avx2
#include "attention/latent_kernels.h"
#include "attention/head_product.h"
#include "attention/latent_store.h"
