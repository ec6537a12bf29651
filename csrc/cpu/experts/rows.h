// What is done row by row around the products of experts, in each instruction set.
#pragma once

#include "experts/experts.h"

namespace core {
namespace experts {

// y[token] = sum of weights[pair] * results[rows[pair]], in the order of the token's pairs.
struct Weighed {
  const float* results;
  int64_t stride;         // elements from one row of them to the next; whole vectors of a row may be read
  const int32_t* rows;    // (tokens, top_k); -1: none
  const float* weights;   // (tokens, top_k)
  int64_t tokens, top_k;
  char* y;
  int64_t y_stride, count;  // columns
  int64_t y_dtype;
};

typedef void SumWeighed(const Weighed& weighed);

SumWeighed* sum_weighed();

}  // namespace experts
}  // namespace core
