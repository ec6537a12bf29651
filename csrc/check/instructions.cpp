// For the check program on an aarch64 that lacks instructions of ARMv8.6, as older emulators do: BFDOT, BFMMLA and
// SMMLA are computed here when the processor refuses them, so that what the compiler made of the kernels runs all the
// same. Slow, and not bit for bit what a processor makes of bfloat16, whose sums it rounds differently.
#include "check/instructions.h"

#if defined(__linux__) && defined(__aarch64__)
#include <fcntl.h>
#include <signal.h>
#include <sys/auxv.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace {

volatile int64_t computed = 0;

struct Register {
  unsigned char bytes[16];
};

template <typename T>
T element(const Register& from, int index) {
  T value;
  std::memcpy(&value, from.bytes + index * static_cast<int>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void put(Register& to, int index, T value) {
  std::memcpy(to.bytes + index * static_cast<int>(sizeof(T)), &value, sizeof(T));
}

float bfloat(const Register& from, int index) {
  uint32_t bits = static_cast<uint32_t>(element<uint16_t>(from, index)) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Four sums of two products; `second` gives its pair `index`, or for every sum the same one, if that is not negative.
void bfdot(Register& sums, const Register& first, const Register& second, int index) {
  for (int e = 0; e < 4; ++e) {
    int other = index < 0 ? e : index;
    float sum = element<float>(sums, e);
    for (int k = 0; k < 2; ++k) sum += bfloat(first, 2 * e + k) * bfloat(second, 2 * other + k);
    put(sums, e, sum);
  }
}

// sums (2, 2) += first (2, 4) times second (2, 4) transposed.
void bfmmla(Register& sums, const Register& first, const Register& second) {
  for (int e = 0; e < 4; ++e) {
    float sum = element<float>(sums, e);
    for (int k = 0; k < 4; ++k) sum += bfloat(first, e / 2 * 4 + k) * bfloat(second, e % 2 * 4 + k);
    put(sums, e, sum);
  }
}

// The same with eight signed bytes instead of four bfloat16.
void smmla(Register& sums, const Register& first, const Register& second) {
  for (int e = 0; e < 4; ++e) {
    int32_t sum = element<int32_t>(sums, e);
    for (int k = 0; k < 8; ++k) sum += element<int8_t>(first, e / 2 * 8 + k) * element<int8_t>(second, e % 2 * 8 + k);
    put(sums, e, sum);
  }
}

// Whether `word` is one of the instructions; then its result is in `registers`.
bool compute(uint32_t word, Register* registers) {
  Register& sums = registers[word & 31];
  Register first = registers[word >> 5 & 31], second = registers[word >> 16 & 31];
  if ((word & 0xffe0fc00u) == 0x6e40fc00u) {
    bfdot(sums, first, second, -1);
  } else if ((word & 0xffc0f400u) == 0x4f40f000u) {
    bfdot(sums, first, second, static_cast<int>((word >> 10 & 2) | (word >> 21 & 1)));
  } else if ((word & 0xffe0fc00u) == 0x6e40ec00u) {
    bfmmla(sums, first, second);
  } else if ((word & 0xffe0fc00u) == 0x4e80a400u) {
    smmla(sums, first, second);
  } else {
    return false;
  }
  return true;
}

// A record of this kind in the frame of a signal, or null.
unsigned char* record(mcontext_t& context, uint32_t kind) {
  auto* at = reinterpret_cast<unsigned char*>(context.__reserved);
  for (;;) {
    uint32_t head[2];  // the kind, and the bytes of the record
    std::memcpy(head, at, sizeof(head));
    if (head[0] == kind) return at;
    if (head[1] == 0) return nullptr;
    at += head[1];
  }
}

// Where the registers are kept as part of SVE's longer ones also, emulators restore them from there.
void copy_to_sve(mcontext_t& context, const Register* registers) {
  unsigned char* sve = record(context, 0x53564501u);
  if (sve == nullptr) return;
  uint32_t size;
  uint16_t length;  // bytes of a register
  std::memcpy(&size, sve + 4, sizeof(size));
  std::memcpy(&length, sve + 8, sizeof(length));
  if (size < 16u + 32u * length) return;  // none are kept
  for (int i = 0; i < 32; ++i) std::memcpy(sve + 16 + i * length, registers[i].bytes, sizeof(Register));
}

void refused(int signal_number, siginfo_t*, void* frame) {
  mcontext_t& context = static_cast<ucontext_t*>(frame)->uc_mcontext;
  uint32_t word;
  std::memcpy(&word, reinterpret_cast<const void*>(context.pc), 4);
  unsigned char* kept = record(context, 0x46508001u);
  auto* registers = reinterpret_cast<Register*>(kept == nullptr ? nullptr : kept + 16);
  if (registers == nullptr || !compute(word, registers)) {
    signal(signal_number, SIG_DFL);  // met again on return
    return;
  }
  copy_to_sve(context, registers);
  computed = computed + 1;
  context.pc += 4;
}

// What the system says of the processor; not by getauxval, which is replaced below.
unsigned long told(unsigned long type) {
  unsigned long entry[2], value = 0;
  int file = open("/proc/self/auxv", O_RDONLY);
  if (file < 0) return 0;
  while (read(file, entry, sizeof(entry)) == static_cast<ssize_t>(sizeof(entry))) {
    if (entry[0] == type) value = entry[1];
  }
  close(file);
  return value;
}

}  // namespace

// In place of the C library's: the processor has what is computed here.
extern "C" unsigned long getauxval(unsigned long type) {
  constexpr unsigned long i8mm = 1ul << 13, bf16 = 1ul << 14;
  return told(type) | (type == AT_HWCAP2 ? i8mm | bf16 : 0);
}

void compute_refused_instructions() {
  struct sigaction action {};
  action.sa_sigaction = refused;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, nullptr);
}

long long refused_instructions() { return computed; }
#else
void compute_refused_instructions() {}
long long refused_instructions() { return 0; }
#endif
