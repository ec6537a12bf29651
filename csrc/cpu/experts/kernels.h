// Routing, and sums of experts' results, for the instruction set of the including file, in core::CORE_VARIANT.
#include "common/parallel.h"
#include "common/vec.h"
#include "experts/rows.h"

namespace core {
namespace CORE_VARIANT {
namespace {

constexpr int64_t kAddGrain = 1 << 15;  // numbers that are worth a thread

// ---- weighed sums --------------------------------------------------------------------------------------------------

template <typename T>
void sum_token(const experts::Weighed& w, const int32_t* rows, const float* weights, T* y) {
  for (int64_t i = 0; i < w.count; i += kLanes) {
    vf total = {};
    for (int64_t place = 0; place < w.top_k; ++place) {
      if (rows[place] < 0) continue;
      total = multiply_add(load(w.results + rows[place] * w.stride + i), splat(weights[place]), total);
    }
    if (w.count - i >= kLanes) {
      store(y + i, total);
    } else {
      store_part(y + i, total, w.count - i);
    }
  }
}

template <typename T>
void sum_tokens(const experts::Weighed& w) {
  for (int64_t token = 0; token < w.tokens; ++token) {
    T* y = reinterpret_cast<T*>(w.y) + token * w.y_stride;
    sum_token(w, w.rows + token * w.top_k, w.weights + token * w.top_k, y);
  }
}

// ---- identities ----------------------------------------------------------------------------------------------------

template <typename T>
void add_share(const T* out, const T* x, float share, T* y, int64_t size) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) store(y + i, multiply_add(load(x + i), splat(share), load(out + i)));
  if (i == size) return;
  vf rest = multiply_add(load_part(x + i, size - i), splat(share), load_part(out + i, size - i));
  store_part(y + i, rest, size - i);
}

template <typename T>
void add_identities(const core_add_identities_args& a) {
  parallel_for(a.tokens, a.threads, ceil_div(kAddGrain, a.size), [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      float share = 0.0f;
      for (int64_t i = token * a.top_k; i < (token + 1) * a.top_k; ++i) {
        if (a.ids[i] >= a.experts) share += a.weights[i];
      }
      add_share(static_cast<const T*>(a.out) + token * a.out_stride, static_cast<const T*>(a.x) + token * a.x_stride,
                share, static_cast<T*>(a.y) + token * a.size, a.size);
    }
  });
}

// ---- routing -------------------------------------------------------------------------------------------------------

constexpr int64_t kRouteGrain = 2048;  // logits that are worth a thread
constexpr float kNone = -__builtin_inff();

// Scores of one token's experts, padded to whole vectors.
struct Scores {
  alignas(64) float scores[CORE_MOST_EXPERTS + kLanes];
  alignas(64) float choice[CORE_MOST_EXPERTS + kLanes];  // what is chosen by; NaN where nothing is, or no longer
};

float largest(const float* values, int64_t count) {
  vf best = splat(kNone);
  // In this order a NaN is passed over.
  for (int64_t i = 0; i < count; i += kLanes) best = vec_max(load(values + i), best);
  return max_of(best);
}

// The softmax of `count` numbers, in place; those behind them up to a whole vector are -infinity.
void softmax(float* values, int64_t count) {
  vf most = splat(largest(values, count)), total = {};
  for (int64_t i = 0; i < count; i += kLanes) {
    vf value = exp(load(values + i) - most);
    store(values + i, value);
    total += value;
  }
  vf sums = splat(sum(total));
  for (int64_t i = 0; i < count; i += kLanes) store(values + i, load(values + i) / sums);
}

// The square root of log(1 + exp(x)); of large numbers the logarithm is the number itself.
float sqrt_softplus(float x) { return __builtin_sqrtf(x > 20.0f ? x : __builtin_log1pf(__builtin_expf(x))); }

// Scores of `count` logits; there is room for a whole vector behind them.
void score(int64_t kind, float* values, int64_t count) {
  for (int64_t i = count; i < round_up(count, kLanes); ++i) values[i] = kNone;
  if (kind == CORE_SOFTMAX) return softmax(values, count);
  if (kind == CORE_SQRT_SOFTPLUS) {
    for (int64_t i = 0; i < count; ++i) values[i] = sqrt_softplus(values[i]);
    return;
  }
  for (int64_t i = 0; i < count; i += kLanes) store(values + i, sigmoid(load(values + i)));
}

// What a group is chosen by.
float group_value(const float* choice, int64_t size, int64_t by) {
  float first = kNone, second = kNone;
  for (int64_t i = 0; i < size; ++i) {
    float value = choice[i];
    if (value > first) {
      second = first;
      first = value;
    } else if (value > second) {
      second = value;
    }
  }
  return by == CORE_GROUP_MAX ? first : first + second;
}

// The place of the largest number, the lowest of equals, which is then marked as taken. One must be left.
int64_t take_largest(float* values, int64_t count) {
  float best = largest(values, count);
  int64_t place = 0;
  while (place + 1 < count && values[place] != best) ++place;
  values[place] = __builtin_nanf("");
  return place;
}

// Leaves the experts of the best groups; the others are chosen when no other is left.
void keep_groups(const core_route_args& a, float* choice) {
  int64_t size = a.experts / a.groups;
  alignas(64) float values[CORE_MOST_EXPERTS + kLanes];
  bool kept[CORE_MOST_EXPERTS] = {};
  for (int64_t i = 0; i < a.groups; ++i) values[i] = group_value(choice + i * size, size, a.group_by);
  for (int64_t i = a.groups; i < round_up(a.groups, kLanes); ++i) values[i] = __builtin_nanf("");
  for (int64_t i = 0; i < a.top_groups; ++i) kept[take_largest(values, a.groups)] = true;
  for (int64_t i = 0; i < a.experts; ++i) choice[i] = kept[i / size] ? choice[i] : kNone;
}

void choose(const core_route_args& a, Scores& s) {
  for (int64_t i = 0; i < a.experts; ++i) {
    float value = a.correction == nullptr ? s.scores[i] : s.scores[i] + a.correction[i];
    s.choice[i] = value == value ? value : kNone;
  }
  for (int64_t i = a.experts; i < round_up(a.experts, kLanes); ++i) s.choice[i] = __builtin_nanf("");
  if (a.groups > a.top_groups) keep_groups(a, s.choice);
}

// Weights of the chosen experts, from their scores or, with `chosen_only`, from their logits.
void weigh(const core_route_args& a, const Scores& s, const int32_t* ids, float* weights) {
  alignas(64) float chosen[CORE_MOST_EXPERTS + kLanes];
  for (int64_t i = 0; i < a.top_k; ++i) chosen[i] = s.scores[ids[i]];
  if (a.chosen_only) score(a.score, chosen, a.top_k);
  float total = 0.0f;
  for (int64_t i = 0; i < a.top_k; ++i) total += chosen[i];
  float divisor = a.renormalize ? total + static_cast<float>(a.eps) : 1.0f;
  for (int64_t i = 0; i < a.top_k; ++i) weights[i] = chosen[i] / divisor * static_cast<float>(a.factor);
}

// Caps logits softly, in place; there is room for a whole vector behind them.
void cap_logits(float* logits, int64_t count, float cap) {
  for (int64_t i = 0; i < count; i += kLanes) store(logits + i, tanh(load(logits + i) / cap) * cap);
}

void route_token(const core_route_args& a, int64_t token, Scores& s) {
  std::memcpy(s.scores, a.logits + token * a.stride, static_cast<size_t>(a.experts) * 4);
  if (a.cap != 0.0) cap_logits(s.scores, a.experts, static_cast<float>(a.cap));
  if (!a.chosen_only) score(a.score, s.scores, a.experts);
  choose(a, s);
  int32_t* ids = a.ids + token * a.top_k;
  for (int64_t i = 0; i < a.top_k; ++i) ids[i] = static_cast<int32_t>(take_largest(s.choice, a.experts));
  weigh(a, s, ids, a.weights + token * a.top_k);
}

}  // namespace

void sum_weighed(const experts::Weighed& w) {
  if (w.y_dtype == CORE_F32) {
    sum_tokens<float>(w);
  } else {
    sum_tokens<bf16>(w);
  }
}

void add_identities(const core_add_identities_args* args) {
  args->dtype == CORE_F32 ? add_identities<float>(*args) : add_identities<bf16>(*args);
}

void route(const core_route_args* args) {
  const core_route_args& a = *args;
  parallel_for(a.tokens, a.threads, ceil_div(kRouteGrain, a.experts), [&](int64_t begin, int64_t end) {
    Scores scores;
    for (int64_t token = begin; token < end; ++token) route_token(a, token, scores);
  });
}

}  // namespace CORE_VARIANT
}  // namespace core
