#define CORE_VARIANT avx2
#include "gemm/finish_body.h"
