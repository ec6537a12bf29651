// Operations element by element, and reductions of rows, for the instruction set of the including file, in namespace core::CORE_VARIANT.
#include "common/parallel.h"
#include "common/vec.h"
#include "map/map.h"

namespace core {
namespace CORE_VARIANT {
namespace {

constexpr int64_t kTile = 256;           // elements that are widened at a time; whole vectors of every instruction set
constexpr int64_t kTeamElements = 8192;  // a team costs about as much as this many

CORE_INLINE vf gelu(vf x) {
  vf size = as_float(as_bits(x) & 0x7fffffffu), tail = erfc(size * 0.70710678f) * 0.5f;
  return x * (x < 0.0f ? tail : 1.0f - tail);
}

CORE_INLINE vf gelu_tanh(vf x) { return x * sigmoid((x + x * x * x * 0.044715f) * 1.5957691216f); }

CORE_INLINE vf root(vf x) {
  vf out;
  for (int lane = 0; lane < kLanes; ++lane) out[lane] = __builtin_sqrtf(x[lane]);
  return out;
}

CORE_INLINE vf passing(vf found, vf x, vf y) {
  found = x == x ? found : x;
  return y == y ? found : y;
}

// log(1 + u) of 0 <= u <= 1, to 1e-7 relative: 2 atanh(s) with s = u / (2 + u), which is at most 1/3.
CORE_INLINE vf log_1p(vf u) {
  vf s = u / (u + 2.0f), square = s * s;
  vf p = square * 0.07692307692307693f + 0.09090909090909091f;
  p = p * square + 0.1111111111111111f;
  p = p * square + 0.14285714285714285f;
  p = p * square + 0.2f;
  p = p * square + 0.3333333333333333f;
  return (s + s * square * p) * 2.0f;
}

// max(z, 0) + log(1 + e^-|z|) of z = y x, which neither overflows nor loses small results.
CORE_INLINE vf softplus(vf x, vf y) {
  vf z = x * y, size = as_float(as_bits(z) & 0x7fffffffu);
  vf out = (vec_max(vf{}, z) + log_1p(exp(-size))) / y;
  return z == z ? out : z;
}

// The operation on a tile: `size` elements and up to one vector more are read and written.
template <typename F>
CORE_INLINE void each(const float* x, const float* y, float* out, int64_t size, const F& f) {
  for (int64_t i = 0; i < size; i += kLanes) store(out + i, f(load(x + i), load(y + i)));
}

void tile_of_one(int64_t operation, const float* x, float* out, int64_t size) {
  auto all = [&](auto f) { each(x, x, out, size, [&](vf v, vf) { return f(v); }); };
  switch (operation) {
    case CORE_MAP_SAME: return all([](vf v) { return v; });
    case CORE_MAP_NEGATE: return all([](vf v) { return -v; });
    case CORE_MAP_ABSOLUTE: return all([](vf v) { return as_float(as_bits(v) & 0x7fffffffu); });
    case CORE_MAP_RELU: return all([](vf v) { return vec_max(vf{}, v); });
    case CORE_MAP_SQUARE: return all([](vf v) { return v * v; });
    case CORE_MAP_ROOT: return all([](vf v) { return root(v); });
    case CORE_MAP_RECIPROCAL_ROOT: return all([](vf v) { return 1.0f / root(v); });
    case CORE_MAP_RECIPROCAL: return all([](vf v) { return 1.0f / v; });
    case CORE_MAP_EXPONENTIAL: return all([](vf v) { return exp(v); });
    case CORE_MAP_TANH: return all([](vf v) { return tanh(v); });
    case CORE_MAP_SIGMOID: return all([](vf v) { return sigmoid(v); });
    case CORE_MAP_SILU: return all([](vf v) { return v * sigmoid(v); });
    case CORE_MAP_GELU: return all([](vf v) { return gelu(v); });
    default: return all([](vf v) { return gelu_tanh(v); });
  }
}

void tile_of_two(int64_t operation, const float* x, const float* y, float* out, int64_t size) {
  switch (operation) {
    case CORE_MAP_ADD: return each(x, y, out, size, [](vf a, vf b) { return a + b; });
    case CORE_MAP_SUBTRACT: return each(x, y, out, size, [](vf a, vf b) { return a - b; });
    case CORE_MAP_SUBTRACT_FROM: return each(x, y, out, size, [](vf a, vf b) { return b - a; });
    case CORE_MAP_MULTIPLY: return each(x, y, out, size, [](vf a, vf b) { return a * b; });
    case CORE_MAP_DIVIDE: return each(x, y, out, size, [](vf a, vf b) { return a / b; });
    case CORE_MAP_MAXIMUM: return each(x, y, out, size, [](vf a, vf b) { return passing(vec_max(a, b), a, b); });
    case CORE_MAP_MINIMUM: return each(x, y, out, size, [](vf a, vf b) { return passing(vec_min(a, b), a, b); });
    default: return each(x, y, out, size, [](vf a, vf b) { return softplus(a, b); });
  }
}

// A row of one operand.
struct Row {
  const void* data;
  int64_t step, dtype;

  // `size` elements from `from` on as float32, with up to a vector of anything behind them; `held` has room for that.
  const float* read(int64_t from, int64_t size, float* held) const {
    return dtype == CORE_BF16 ? read_as(static_cast<const bf16*>(data), from, size, held)
                              : read_as(static_cast<const float*>(data), from, size, held);
  }

 private:
  template <typename T>
  const float* read_as(const T* row, int64_t from, int64_t size, float* held) const {
    const T* first = row + from * step;
    if (step != 1) {
      for (int64_t i = 0; i < size; ++i) held[i] = to_float(first[i * step]);
      return held;
    }
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) store(held + i, load(first + i));
    if (i < size) store(held + i, load_part(first + i, size - i));
    return held;
  }
};

// Rounds to nearest even, a NaN stays one. The processor's own instruction would make zeros of what is below 2^-126.
CORE_INLINE void put(bf16* out, vf value) {
  vu bits = as_bits(value), quiet = (bits >> 16) | 0x40u;
  vu rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  vh halves = __builtin_convertvector((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded, vh);
  *reinterpret_cast<vh_mem*>(out) = halves;
}

CORE_INLINE void put(float* out, vf value) { store(out, value); }

template <typename T>
void write(T* out, const float* held, int64_t size) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) put(out + i, load(held + i));
  if (i == size) return;
  T part[kLanes];
  put(part, load(held + i));
  std::memcpy(out + i, part, static_cast<size_t>(size - i) * sizeof(T));
}

void map_part(const core_map_args& a, const Row& x, const Row& y, void* out, int64_t from, int64_t size) {
  alignas(64) float first[kTile] = {}, second[kTile] = {}, made[kTile];
  const float* left = x.read(from, size, first);
  if (a.operation < CORE_MAP_ADD) {
    tile_of_one(a.operation, left, made, size);
  } else {
    tile_of_two(a.operation, left, y.read(from, size, second), made, size);
  }
  a.out_dtype == CORE_BF16 ? write(static_cast<bf16*>(out) + from, made, size)
                           : write(static_cast<float*>(out) + from, made, size);
}

inline const void* moved(const void* data, int64_t elements, int64_t dtype) {
  return static_cast<const char*>(data) + elements * (dtype == CORE_BF16 ? 2 : 4);
}

// What a row begins with, and what two parts of it become.
CORE_INLINE float neutral(int64_t operation) {
  if (operation == CORE_REDUCE_GREATEST) return -__builtin_inff();
  return operation == CORE_REDUCE_LEAST ? __builtin_inff() : 0.0f;
}

CORE_INLINE vf joined(int64_t operation, vf a, vf b) {
  if (operation == CORE_REDUCE_GREATEST) return passing(vec_max(a, b), a, b);
  return operation == CORE_REDUCE_LEAST ? passing(vec_min(a, b), a, b) : a + b;
}

CORE_INLINE float joined(int64_t operation, float a, float b) {
  if (operation < CORE_REDUCE_GREATEST) return a + b;
  if (a != a || b != b) return a != a ? a : b;
  return (operation == CORE_REDUCE_GREATEST) == (a > b) ? a : b;
}

float reduce_tile(int64_t operation, const float* held, int64_t size) {
  vf found = load(held);
  for (int64_t i = kLanes; i < size; i += kLanes) found = joined(operation, found, load(held + i));
  if (operation < CORE_REDUCE_GREATEST) return sum(found);
  float out = found[0];
  for (int lane = 1; lane < kLanes; ++lane) out = joined(operation, out, found[lane]);
  return out;
}

float reduce_row(int64_t operation, const Row& x, int64_t size) {
  alignas(64) float held[kTile];
  float out = neutral(operation);
  for (int64_t from = 0; from < size; from += kTile) {
    int64_t part = size - from < kTile ? size - from : kTile;
    x.read(from, part, held);
    for (int64_t i = part; i % kLanes != 0; ++i) held[i] = neutral(operation);
    out = joined(operation, out, reduce_tile(operation, held, part));
  }
  return operation == CORE_REDUCE_MEAN ? out / static_cast<float>(size) : out;
}

}  // namespace

void reduce(const core_reduce_args* args) {
  const core_reduce_args& a = *args;
  parallel_for(a.outer * a.inner, a.threads, ceil_div(kTeamElements, a.size > 0 ? a.size : 1),
               [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t i = row / a.inner, j = row % a.inner;
      Row x{moved(a.x, i * a.x_outer + j * a.x_inner, a.x_dtype), a.x_step, a.x_dtype};
      const float found[kLanes] = {reduce_row(a.operation, x, a.size)};
      auto out = const_cast<void*>(moved(a.out, i * a.out_outer + j * a.out_inner, a.out_dtype));
      a.out_dtype == CORE_BF16 ? write(static_cast<bf16*>(out), found, 1) : write(static_cast<float*>(out), found, 1);
    }
  });
}

void map(const core_map_args* args) {
  core_map_args a = *args;
  float scalar = static_cast<float>(a.scalar);
  if (a.y == nullptr) {
    a.y = &scalar;
    a.y_outer = a.y_inner = a.y_step = 0;
    a.y_dtype = CORE_F32;
  }
  int64_t parts = ceil_div(a.size, kTile), usual = a.size < kTile ? a.size : kTile;
  parallel_for(a.outer * a.inner * parts, a.threads, ceil_div(kTeamElements, usual > 0 ? usual : 1),
               [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      int64_t row = unit / parts, from = unit % parts * kTile, i = row / a.inner, j = row % a.inner;
      Row x{moved(a.x, i * a.x_outer + j * a.x_inner, a.x_dtype), a.x_step, a.x_dtype};
      Row y{moved(a.y, i * a.y_outer + j * a.y_inner, a.y_dtype), a.y_step, a.y_dtype};
      auto out = const_cast<void*>(moved(a.out, i * a.out_outer + j * a.out_inner, a.out_dtype));
      map_part(a, x, y, out, from, a.size - from < kTile ? a.size - from : kTile);
    }
  });
}

}  // namespace CORE_VARIANT
}  // namespace core
