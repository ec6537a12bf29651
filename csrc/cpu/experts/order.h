// Rows by expert: a stable counting sort of the pairs of a token and one of its experts.
#pragma once

#include "common/types.h"

namespace core {
namespace experts {
namespace {

struct Order {
  int32_t* starts;  // (experts + 1): the first row of each expert; last, that of the pairs without one
  int32_t* pairs;   // (rows): the pair of each row
  int32_t* rows;    // (pairs): the row of each pair, or -1 without an expert

  int64_t count(int64_t expert) const { return starts[expert + 1] - starts[expert]; }
};

// Where an order of so many pairs lies in `at`, 64-byte aligned memory of `order_bytes`.
inline int64_t starts_bytes(int64_t experts) { return round_up((experts + 3) * 4, 64); }
inline int64_t order_bytes(int64_t pairs, int64_t experts) {
  return starts_bytes(experts) + 2 * round_up(pairs * 4, 64);
}
inline Order order_at(char* at, int64_t pairs, int64_t experts) {
  char* behind = at + starts_bytes(experts);
  return {reinterpret_cast<int32_t*>(at), reinterpret_cast<int32_t*>(behind),
          reinterpret_cast<int32_t*>(behind + round_up(pairs * 4, 64))};
}

// Ids that are no experts count as one more expert, behind the others.
inline void sort_pairs(const int32_t* ids, int64_t pairs, int64_t experts, const Order& order) {
  auto bucket = [&](int64_t pair) {
    uint32_t id = static_cast<uint32_t>(ids[pair]);
    return id < static_cast<uint64_t>(experts) ? static_cast<int64_t>(id) : experts;
  };
  // Counted two places further on, and placed one: what is left are the starts.
  std::memset(order.starts, 0, static_cast<size_t>(experts + 3) * 4);
  for (int64_t pair = 0; pair < pairs; ++pair) ++order.starts[bucket(pair) + 2];
  for (int64_t i = 2; i < experts + 3; ++i) order.starts[i] += order.starts[i - 1];
  for (int64_t pair = 0; pair < pairs; ++pair) {
    int64_t expert = bucket(pair);
    int32_t row = order.starts[expert + 1]++;
    order.pairs[row] = static_cast<int32_t>(pair);
    order.rows[pair] = expert < experts ? row : -1;
  }
}

}  // namespace
}  // namespace experts
}  // namespace core
