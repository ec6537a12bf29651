// Finds the instruction set at first use; see cpu.h.
#include <atomic>
#include <cstdlib>

#include "common/cpu.h"

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__linux__) && defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace core {
namespace {

constexpr const char* kNames[kIsaCount] = {"base", "avx2",     "avx_vnni",  "avx512",   "avx512_vnni", "avx512_bf16",
                                            "amx",  "neon_dot", "neon_bf16", "neon_i8mm"};

#if defined(__linux__) && defined(__aarch64__)
Isa best_neon() {
  constexpr unsigned long dot = 1ul << 20, bf16 = 1ul << 14, i8mm = 1ul << 13;  // HWCAP_ASIMDDP, HWCAP2_BF16, _I8MM
  unsigned long more = getauxval(AT_HWCAP2);
  bool dots = (getauxval(AT_HWCAP) & dot) != 0, bfloats = (more & bf16) != 0, matrices = (more & i8mm) != 0;
  Isa found = Isa::base;
#ifdef CORE_HAVE_NEON_DOT
  if (dots) found = Isa::neon_dot;
#ifdef CORE_HAVE_NEON_BF16
  if (dots && bfloats) found = Isa::neon_bf16;
#ifdef CORE_HAVE_NEON_I8MM
  if (dots && bfloats && matrices) found = Isa::neon_i8mm;
#endif
#endif
#endif
  (void)dots, (void)bfloats, (void)matrices;
  return found;
}
#endif

#if defined(__x86_64__)
struct Registers {
  unsigned a, b, c, d;
};

// Features of the processor. gcc 12's __builtin_cpu_supports does not know the names of all of them.
Registers cpuid_leaf_7(unsigned subleaf) {
  Registers found = {7, 0, subleaf, 0};
  __asm__ volatile("cpuid" : "+a"(found.a), "=b"(found.b), "+c"(found.c), "=d"(found.d));
  return found;
}
#endif

#if defined(CORE_EMULATED_TILES)
bool amx_usable() { return true; }  // see check/emulated_tiles.h
#elif defined(__linux__) && defined(__x86_64__) && defined(CORE_HAVE_AMX)
bool amx_in_processor() {
  constexpr unsigned bf16 = 1u << 22, tile = 1u << 24, int8 = 1u << 25;
  return (cpuid_leaf_7(0).d & (bf16 | tile | int8)) == (bf16 | tile | int8);
}

// Tile registers enlarge the signal frame, so the kernel hands them out per process and only on request.
bool amx_permitted() {
  constexpr long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

bool amx_usable() { return amx_in_processor() && amx_permitted(); }
#elif defined(__x86_64__)
[[maybe_unused]] bool amx_usable() { return false; }
#endif

#if defined(__x86_64__) && defined(CORE_HAVE_AVX2)
bool has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
#endif

// Whether there are AVX2's dot products of bytes; subleaf 0 says how many subleaves there are.
bool avx_vnni_usable() {
#if defined(__x86_64__) && defined(CORE_HAVE_AVX2) && defined(CORE_HAVE_AVX_VNNI)
  constexpr unsigned avx_vnni = 1u << 4;
  return has_avx2() && cpuid_leaf_7(0).a >= 1 && (cpuid_leaf_7(1).a & avx_vnni) != 0;
#else
  return false;
#endif
}

Isa best() {
#if defined(__x86_64__) && defined(CORE_HAVE_AVX2)
  if (!has_avx2()) return Isa::base;
#ifdef CORE_HAVE_AVX512
  if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512cd"))) {
    return avx_vnni_usable() ? Isa::avx_vnni : Isa::avx2;
  }
#ifdef CORE_HAVE_AVX512_VNNI
  if (!__builtin_cpu_supports("avx512vnni")) return Isa::avx512;
#ifdef CORE_HAVE_AVX512_BF16
  if (!__builtin_cpu_supports("avx512bf16")) return Isa::avx512_vnni;
  return amx_usable() ? Isa::amx : Isa::avx512_bf16;
#else
  return Isa::avx512_vnni;
#endif
#else
  return Isa::avx512;
#endif
#else
  return avx_vnni_usable() ? Isa::avx_vnni : Isa::avx2;
#endif
#elif defined(__linux__) && defined(__aarch64__)
  return best_neon();
#else
  return Isa::base;
#endif
}

#if defined(__x86_64__)
// Intel's processors that have AMX start a dot product of bfloat16 pairs every other cycle, and two multiply-adds in
// each: where a virtual machine withholds AMX from it, widened weights are multiplied in little more than half the time.
bool slow_bf16_dot_products() {
  constexpr unsigned float16 = 1u << 23;  // AVX-512 FP16, which came with AMX and is not withheld with it
  return __builtin_cpu_is("intel") && (cpuid_leaf_7(0).d & float16) != 0;
}
#else
bool slow_bf16_dot_products() { return false; }
#endif

// The level to begin with, where nobody names one.
Isa usual() {
  Isa found = best();
  return found == Isa::avx512_bf16 && slow_bf16_dot_products() ? Isa::avx512_vnni : found;
}

// Levels of the other family are unknown here.
int level_of(const char* name) {
  for (int level = 0; level < kIsaCount; ++level) {
    bool arm = level > static_cast<int>(Isa::amx);
#if defined(__aarch64__)
    bool here = level == 0 || arm;
#else
    bool here = !arm;
#endif
    if (here && std::strcmp(name, kNames[level]) == 0) return level;
  }
  return -1;
}

// Whether the processor has a level of its family. A faster one does not imply `avx_vnni` (kExtends).
bool usable(int level) {
  if (level == static_cast<int>(Isa::avx_vnni)) return avx_vnni_usable();
  return level >= 0 && level <= static_cast<int>(best());
}

Isa initial() {
  const char* cap = std::getenv("CORE_CPU_ISA");
  int level = cap == nullptr ? -1 : level_of(cap);
  return usable(level) ? static_cast<Isa>(level) : usual();
}

std::atomic<int>& current() {
  static std::atomic<int> level{static_cast<int>(initial())};
  return level;
}

}  // namespace

Isa isa() { return static_cast<Isa>(current().load(std::memory_order_relaxed)); }

}  // namespace core

// Grows whenever an argument struct or an entry changes; the loader refuses a library of another number.
CORE_API int64_t core_cpu_abi() { return 17; }

// Name of the level in use.
CORE_API const char* core_cpu_isa() { return core::kNames[static_cast<int>(core::isa())]; }

// Use `name` from now on; not while kernels run. Returns 0, or -1 for a name that is unknown or more than is there.
CORE_API int64_t core_cpu_select_isa(const char* name) {
  int level = core::level_of(name);
  if (!core::usable(level)) return -1;
  core::current().store(level, std::memory_order_relaxed);
  return 0;
}
