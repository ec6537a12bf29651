// Which instruction set the kernels use: the fastest that the processor and the system allow, bounded by CORE_CPU_ISA.
#pragma once

#include <cstddef>

#include "common/types.h"

namespace core {

// In order: of what a processor has, the last is the fastest. The two families never meet.
enum class Isa : int {
  base = 0,
  avx2,
  avx_vnni,
  avx512,
  avx512_vnni,
  avx512_bf16,
  amx,
  neon_dot,
  neon_bf16,
  neon_i8mm
};
constexpr int kIsaCount = 10;

// The level whose instructions each has too. It is not always the one before it: processors had AVX-512 years before
// any had AVX-VNNI, so a variant for the latter must serve no level of the former.
constexpr Isa kExtends[kIsaCount] = {Isa::base,        Isa::base,        Isa::avx2, Isa::avx2,     Isa::avx512,
                                     Isa::avx512_vnni, Isa::avx512_bf16, Isa::base, Isa::neon_dot, Isa::neon_bf16};

// The level in use.
Isa isa();

// A function, or whatever there is of each level, and its level; made by the macros below.
template <typename F>
struct Variant {
  Isa level;
  F* of;
};

template <typename F>
constexpr Variant<F> variant(Isa level, F* of) {
  return {level, of};
}

// Variants of one function; a level without one of its own uses that of the level it extends.
//
//   static const core::Variants<void(const core_x_args*)> kVariants = {base::x, CORE_AVX2(avx2::x), ...};
//   CORE_API void core_cpu_x(const core_x_args* args) { kVariants.pick()(args); }
template <typename F>
class Variants {
 public:
  template <typename... Others>
  constexpr Variants(F* base, Others... others) : by_level_{base} {
    (put(others), ...);
  }

  F* pick() const { return pick(isa()); }

  constexpr F* pick(Isa level) const {
    while (level != Isa::base && own(level) == nullptr) level = kExtends[static_cast<int>(level)];
    return own(level);
  }

  // The variant of this very level, or null.
  constexpr F* own(Isa level) const { return by_level_[static_cast<int>(level)]; }

 private:
  constexpr void put(Variant<F> given) { by_level_[static_cast<int>(given.level)] = given.of; }
  constexpr void put(std::nullptr_t) {}

  F* by_level_[kIsaCount];
};

}  // namespace core

// A variant that exists only where the compiler knows the instruction set.
#ifdef CORE_HAVE_AVX2
#define CORE_AVX2(f) core::variant(core::Isa::avx2, f)
#else
#define CORE_AVX2(f) nullptr
#endif
#ifdef CORE_HAVE_AVX_VNNI
#define CORE_AVX_VNNI(f) core::variant(core::Isa::avx_vnni, f)
#else
#define CORE_AVX_VNNI(f) nullptr
#endif
#ifdef CORE_HAVE_AVX512
#define CORE_AVX512(f) core::variant(core::Isa::avx512, f)
#else
#define CORE_AVX512(f) nullptr
#endif
#ifdef CORE_HAVE_AVX512_VNNI
#define CORE_AVX512_VNNI(f) core::variant(core::Isa::avx512_vnni, f)
#else
#define CORE_AVX512_VNNI(f) nullptr
#endif
#ifdef CORE_HAVE_AVX512_BF16
#define CORE_AVX512_BF16(f) core::variant(core::Isa::avx512_bf16, f)
#else
#define CORE_AVX512_BF16(f) nullptr
#endif
#ifdef CORE_HAVE_AMX
#define CORE_AMX(f) core::variant(core::Isa::amx, f)
#else
#define CORE_AMX(f) nullptr
#endif
#ifdef CORE_HAVE_NEON_DOT
#define CORE_NEON_DOT(f) core::variant(core::Isa::neon_dot, f)
#else
#define CORE_NEON_DOT(f) nullptr
#endif
#ifdef CORE_HAVE_NEON_BF16
#define CORE_NEON_BF16(f) core::variant(core::Isa::neon_bf16, f)
#else
#define CORE_NEON_BF16(f) nullptr
#endif
#ifdef CORE_HAVE_NEON_I8MM
#define CORE_NEON_I8MM(f) core::variant(core::Isa::neon_i8mm, f)
#else
#define CORE_NEON_I8MM(f) nullptr
#endif
