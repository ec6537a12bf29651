// Which instruction set the kernels use: what the processor and the system allow, bounded by CORE_CPU_ISA.
#pragma once

#include "common/types.h"

namespace core {

// In order: a processor that has one level has those before it that belong to its family; the two families never meet,
// and the other's variants are nullptr.
enum class Isa : int { base = 0, avx2, avx512, avx512_vnni, avx512_bf16, amx, neon_dot, neon_bf16, neon_i8mm };
constexpr int kIsaCount = 9;

// The level in use.
Isa isa();

// Whether the processor makes a dot product of bfloat16 pairs in the time of four multiply-adds of float32, so that what
// is widened once and read often is multiplied faster: those of Intel that have AMX, also where the system hides it.
bool slow_dots();

inline bool has(Isa level) { return isa() >= level; }

// Variants of one function, by level; a level without one of its own (nullptr) uses the level below.
//
//   static const core::Variants<void(const core_x_args*)> kVariants = {base::x, CORE_AVX2(avx2::x), ...};
//   CORE_API void core_cpu_x(const core_x_args* args) { kVariants.pick()(args); }
template <typename F>
struct Variants {
  F* by_level[kIsaCount];

  F* pick() const {
    int level = static_cast<int>(isa());
    while (level > 0 && by_level[level] == nullptr) --level;
    return by_level[level];
  }
};

}  // namespace core

// A variant that exists only where the compiler knows the instruction set.
#ifdef CORE_HAVE_AVX2
#define CORE_AVX2(f) f
#else
#define CORE_AVX2(f) nullptr
#endif
#ifdef CORE_HAVE_AVX512
#define CORE_AVX512(f) f
#else
#define CORE_AVX512(f) nullptr
#endif
#ifdef CORE_HAVE_AVX512_VNNI
#define CORE_AVX512_VNNI(f) f
#else
#define CORE_AVX512_VNNI(f) nullptr
#endif
#ifdef CORE_HAVE_AVX512_BF16
#define CORE_AVX512_BF16(f) f
#else
#define CORE_AVX512_BF16(f) nullptr
#endif
#ifdef CORE_HAVE_AMX
#define CORE_AMX(f) f
#else
#define CORE_AMX(f) nullptr
#endif
#ifdef CORE_HAVE_NEON_DOT
#define CORE_NEON_DOT(f) f
#else
#define CORE_NEON_DOT(f) nullptr
#endif
#ifdef CORE_HAVE_NEON_BF16
#define CORE_NEON_BF16(f) f
#else
#define CORE_NEON_BF16(f) nullptr
#endif
#ifdef CORE_HAVE_NEON_I8MM
#define CORE_NEON_I8MM(f) f
#else
#define CORE_NEON_I8MM(f) nullptr
#endif
