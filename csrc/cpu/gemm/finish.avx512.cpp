#define CORE_VARIANT avx512
#include "gemm/finish_body.h"
