// Entries of this folder: choice of the variants, and copies.
#include "map/map.h"

#include "common/cpu.h"
#include "common/parallel.h"

namespace core {

namespace base { void map(const core_map_args*); void reduce(const core_reduce_args*); }
namespace avx2 { void map(const core_map_args*); void reduce(const core_reduce_args*); }
namespace avx512 { void map(const core_map_args*); void reduce(const core_reduce_args*); }
namespace avx512_bf16 { void map(const core_map_args*); void reduce(const core_reduce_args*); }

static const Variants<void(const core_map_args*)> kMap = {
    base::map, CORE_AVX2(avx2::map), CORE_AVX512(avx512::map), CORE_AVX512_BF16(avx512_bf16::map)};

static const Variants<void(const core_reduce_args*)> kReduce = {
    base::reduce, CORE_AVX2(avx2::reduce), CORE_AVX512(avx512::reduce), CORE_AVX512_BF16(avx512_bf16::reduce)};

namespace {

constexpr int64_t kTeamBytes = 65536;  // a team costs about as much as copying this many

template <typename T>
void copy_row(const T* x, T* out, const core_copy_args& a) {
  if (a.x_step == 1 && a.out_step == 1) {
    std::memcpy(out, x, static_cast<size_t>(a.size) * sizeof(T));
  } else {
    for (int64_t k = 0; k < a.size; ++k) out[k * a.out_step] = x[k * a.x_step];
  }
}

template <typename T>
void copy(const core_copy_args& a) {
  auto x = static_cast<const T*>(a.x);
  auto out = static_cast<T*>(a.out);
  int64_t bytes = a.size * static_cast<int64_t>(sizeof(T));
  parallel_for(a.outer * a.inner, a.threads, ceil_div(kTeamBytes, bytes > 0 ? bytes : 1),
               [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t i = row / a.inner, j = row % a.inner;
      copy_row(x + i * a.x_outer + j * a.x_inner, out + i * a.out_outer + j * a.out_inner, a);
    }
  });
}

}  // namespace
}  // namespace core

CORE_API void core_cpu_map(const core_map_args* args) { core::kMap.pick()(args); }

CORE_API void core_cpu_reduce(const core_reduce_args* args) { core::kReduce.pick()(args); }

CORE_API void core_cpu_copy(const core_copy_args* args) {
  if (args->item == 1) return core::copy<uint8_t>(*args);
  if (args->item == 2) return core::copy<uint16_t>(*args);
  if (args->item == 4) return core::copy<uint32_t>(*args);
  core::copy<uint64_t>(*args);
}
