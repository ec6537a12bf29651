// The last step of every tile, in each instruction set.
#pragma once

#include "gemm/kernel.h"

namespace core {
namespace gemm {

Finish* finish();

}  // namespace gemm
}  // namespace core
