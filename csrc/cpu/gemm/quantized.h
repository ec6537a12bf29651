// Kernels for GGUF's block formats. Included once per instruction set, with CORE_VARIANT set.
//
// Activations are rounded to integers, one scale for 32 of them; a block of weights meets a block of activations in
// integers, and the two scales are applied to the sum. The codes of a line are unsigned and the activations signed, as
// the instructions want them; a zero point costs nothing, since sums start at -zero * (sum of the activations).
#include <utility>

#include "gemm/activations.h"
#include "gemm/ahead.h"

namespace core {
namespace gemm {
namespace {

#if defined(__AVX512F__)
constexpr int kRows = 8, kWide = 4;
#elif defined(__AVXVNNI__)
constexpr int kRows = 6, kWide = 4;
#elif defined(__AVX2__)
constexpr int kRows = 4, kWide = 1;
#else
constexpr int kRows = 2, kWide = 1;
#endif

constexpr int kFewRows = 4;       // rows up to which a tile asks for its own weights
constexpr int64_t kBlockRun = 8;  // blocks between two steps of asking for the next ones, a multiple of every group

// Keeps sums in the order in which they are written: the compiler would make all products of a block first, which are
// more than there are registers.
template <typename Sum>
CORE_INLINE Sum as_written(Sum sum) {
#if defined(__AVX2__)
  __asm__("" : "+v"(sum));
#endif
  return sum;
}

// Four activations for every dword of codes.
CORE_INLINE vu four_bytes(const int8_t* x) {
  uint32_t four;
  std::memcpy(&four, x, 4);
  return splat_bits(four);
}

// Adds to each dword of `sum` the products of four codes and four activations.
template <typename F>
CORE_INLINE vi dot_codes(vi sum, vu codes, vu values) {
#if defined(__ARM_FEATURE_DOTPROD)
  if (meets_bytes<F>()) return (vi)vdotq_s32((int32x4_t)sum, (int8x16_t)codes, (int8x16_t)values);
#endif
#if defined(CORE_UNSIGNED_DOTS)
  return dot_bytes(sum, codes, values);
#else
  sum += dot_pairs(codes & 0x00ff00ffu, even_bytes(values));
  return sum + dot_pairs((codes >> 8) & 0x00ff00ffu, odd_bytes(values));
#endif
}

// The products of codes and activations, two added up in each 16 bits.
CORE_INLINE vs pair_codes(vu codes, vu values) {
#if defined(__AVX512BW__)
  return (vs)_mm512_maddubs_epi16((__m512i)codes, (__m512i)values);
#elif defined(__AVX2__)
  return (vs)_mm256_maddubs_epi16((__m256i)codes, (__m256i)values);
#else
  (void)codes, (void)values;
  return vs{};  // see lines_in_16_bits
#endif
}

CORE_INLINE vi sum_pairs(vs pairs) { return dot_pairs((vu)pairs, vu{} + 0x00010001u); }

// Sums of products of codes and bytes for M rows: how they start, and how they grow by a line of codes.
template <typename F, int M>
struct Dots {
  static constexpr int lines = lines_in_16_bits<F>();
  vi sum[M];
  vs pairs[M];  // of the lines that `sum` lacks

  CORE_INLINE void start(int i, int32_t first) { sum[i] = first + vi{}; }
  CORE_INLINE void add(int i, vu line, const int8_t* x, int g) {
    vu values = four_bytes(x + g * 4);
    if constexpr (lines == 0) {
      sum[i] = dot_codes<F>(sum[i], line, values);
    } else {
      vs products = pair_codes(line, values);
      pairs[i] = as_written(g % lines == 0 ? products : pairs[i] + products);
      if (g % lines == lines - 1) sum[i] += sum_pairs(pairs[i]);
    }
  }
};

// Integer sums of M rows: how they start, how they grow by a line of codes, and what they come to.
template <typename F, typename X, int M>
struct Sums;

template <typename F, int M>
struct Sums<F, Coarse, M> {
  Dots<F, M> dots;

  CORE_INLINE void start(int i, int32_t first) { dots.start(i, first); }
  CORE_INLINE void add(int i, vu line, const Coarse& x, int g) { dots.add(i, line, x.values, g); }
  CORE_INLINE vi result(int i) { return dots.sum[i]; }
};

template <typename F, int M>
struct Sums<F, Fine, M> {
  Dots<F, M> dots, high;

  CORE_INLINE void start(int i, int32_t first) {
    dots.start(i, first);
    high.start(i, 0);
  }
  CORE_INLINE void add(int i, vu line, const Fine& x, int g) {
    dots.add(i, line, x.values, g);
    high.add(i, line, x.high, g);
  }
  CORE_INLINE vi result(int i) { return (high.sum[i] << 8) + dots.sum[i]; }
};

template <typename F, int M>
struct Sums<F, FinePairs, M> {
  vi sum[M];

  CORE_INLINE void start(int i, int32_t first) { sum[i] = first + vi{}; }
  CORE_INLINE void add(int i, vu line, const FinePairs& x, int g) {
    uint32_t even, odd;
    std::memcpy(&even, x.values + g * 4, 4);
    std::memcpy(&odd, x.values + g * 4 + 2, 4);
    sum[i] += dot_pairs(line & 0x00ff00ffu, splat_bits(even));
    sum[i] = as_written(sum[i] + dot_pairs((line >> 8) & 0x00ff00ffu, splat_bits(odd)));
  }
  CORE_INLINE vi result(int i) { return sum[i]; }
};

// One block of one vector of channels meets M rows.
template <typename F, typename X, int M>
CORE_INLINE void add_block(vf* acc, const char* codes, int v, const BlockScale& scale, const char* x,
                           int64_t row_bytes) {
#if defined(__AVXVNNI__)
  if (M > 1) __asm__ volatile("" : "+r"(x));  // or else activations wait for the next vector, on the stack
#endif
  constexpr bool halves = F::halves;
  auto row = [&](int i) -> const X& { return *reinterpret_cast<const X*>(x + i * row_bytes); };
#pragma GCC unroll 2
  for (int half = 0; half < (halves ? 2 : 1); ++half) {
    Sums<F, X, M> sums;
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) sums.start(i, F::zero == 0 ? 0 : row(i).with.start[half]);
#pragma GCC unroll 8
    for (int g = halves ? half * 4 : 0; g < (halves ? half * 4 + 4 : 8); ++g) {
      vu line = code_line<F>(codes, g, v);
#pragma GCC unroll 8
      for (int i = 0; i < M; ++i) sums.add(i, line, row(i), g);
    }
    vf factor = half == 0 ? scale.low : scale.high;
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
      vf& total = acc[i * kVecs + v];
      total = add_sum(total, sums.result(i), factor, row(i).with.scale);
      if (F::has_minimum && half == 0) total = multiply_add(scale.minimum, splat(row(i).with.sum), total);
    }
  }
}

// P panels, whose scales are `scales` bytes after their codes, and what is asked for of them where a tile asks for its own.
struct Panels {
  const char* w;
  int64_t bytes, scales;
  bool own;
  Ahead ahead, scales_ahead;
};

// Blocks that share scales, from block `first` on, meet M rows.
template <typename F, typename X, int M, int P>
CORE_INLINE void add_group(vf (*acc)[M * kVecs], const Panels& panels, int64_t first, const char* x,
                           int64_t row_bytes) {
  BlockScale group[P][kVecs];
  int64_t at_scales = first / F::group * F::scale_bytes;
  const char* shared = panels.w + panels.scales + at_scales;
  if (panels.own) {
    const char* later = shared + panels.scales_ahead.from(at_scales);
    for (int p = 0; p < P; ++p) ask(later + p * panels.bytes);
  }
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) group[p][v] = group_scale<F>(shared + p * panels.bytes, v);
  }
  for (int64_t block = 0; block < F::group; ++block, x += sizeof(X)) {
    int64_t begin = (first + block) * F::code_bytes, later = panels.ahead.from(begin);
    const char* codes = panels.w + begin;
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p, codes += panels.bytes) {
      if (panels.own) {
        for (int64_t at = 0; at < F::code_bytes; at += 64) ask(codes + later + at);
      }
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        BlockScale scale = block_scale<F>(group[p][v], shared + p * panels.bytes, block, v);
        add_block<F, X, M>(acc[p], codes, v, scale, x, row_bytes);
      }
    }
  }
}

// Bytes are multiplied as they lie.
template <typename F, int P>
constexpr int64_t kCodesAhead = ahead_in(P, F::bits == 8 ? kAhead : kOpenedAhead);

// M rows by P panels.
template <typename F, typename X, int M, int P>
void tile(const char* x, int64_t row_bytes, const char* w, int64_t panel_bytes, int64_t scales, int64_t blocks,
          const Soon& soon, float* out) {
  vf acc[P][M * kVecs] = {};
  Panels panels{w, panel_bytes, scales, M <= kFewRows && soon.at == nullptr,
                Ahead(kCodesAhead<F, P>, blocks * F::code_bytes, P, panel_bytes),
                Ahead(kScalesAhead, blocks / F::group * F::scale_bytes, P, panel_bytes)};
  int64_t run = run_of(soon, blocks, kBlockRun);
  Asking asking(soon, ceil_div(blocks, kBlockRun));
  for (int64_t block = 0, last; block < blocks; block = last) {
    last = blocks - block < run ? blocks : block + run;
    asking.step();
    for (int64_t first = block; first < last; first += F::group) {
      add_group<F, X, M, P>(acc, panels, first, x + first * static_cast<int64_t>(sizeof(X)), row_bytes);
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) store(out + (i * kWide + p) * kPanel + v * kLanes, acc[p][i * kVecs + v]);
    }
  }
}

typedef void TileOf(const char*, int64_t, const char*, int64_t, int64_t, int64_t, const Soon&, float*);

// One row by several panels, which are as many streams from memory; other rows by one panel after another.
struct Tiles {
  TileOf* row[kWide];
  TileOf* rows[kRows];
};

template <typename F, typename X, size_t... I, size_t... J>
constexpr Tiles make_tiles(std::index_sequence<I...>, std::index_sequence<J...>) {
  return {{&tile<F, X, 1, I + 1>...}, {&tile<F, X, J + 1, 1>...}};
}

template <typename F, typename X>
void run_tile(const Call& call, const Tile& where, const char*, float* out) {
  static constexpr Tiles tiles =
      make_tiles<F, X>(std::make_index_sequence<kWide>(), std::make_index_sequence<kRows>());
  int64_t blocks = call.inputs / kBlock, scales = scales_at(call);
  const char* x = call.rows + where.row * call.row_bytes;
  const char* w = panel_of(call, where.panel);
  if (where.rows == 1) {
    return tiles.row[where.panels - 1](x, call.row_bytes, w, call.panel_bytes, scales, blocks, {}, out);
  }
  for (int64_t p = 0; p < where.panels; ++p, w += call.panel_bytes, out += kPanel) {
    Soon soon = part_of(where.soon, p, p + 1, where.panels);
    tiles.rows[where.rows - 1](x, call.row_bytes, w, call.panel_bytes, scales, blocks, soon, out);
  }
}

template <typename F, typename X, typename From>
void quantize_row(const From* from, char* to, int64_t count) {
  X* block = reinterpret_cast<X*>(to);
  for (int64_t i = 0; i < count; i += kBlock) quantize_block<F>(from + i, count - i, block++);
}

template <typename F, typename X>
void quantize_rows(const Call& call, int64_t begin, int64_t end) {
  const core_gemm_args& args = *call.args;
  for (int64_t row = begin; row < end; ++row) {
    char* to = const_cast<char*>(call.rows) + row * call.row_bytes;
    if (args.x_dtype == CORE_F32) {
      quantize_row<F, X>(static_cast<const float*>(args.x) + row * args.x_stride, to, args.k);
    } else {
      quantize_row<F, X>(static_cast<const bf16*>(args.x) + row * args.x_stride, to, args.k);
    }
  }
}

template <typename X>
int64_t quantized_bytes(const core_gemm_args& args) {
  return padded_inputs(args) / kBlock * static_cast<int64_t>(sizeof(X));
}

template <typename F, typename X>
constexpr Kernel block_kernel() {
  return {kRows,   kWide,   nullptr, quantized_bytes<X>, quantize_rows<F, X>, run_tile<F, X>,
          nullptr, nullptr, nullptr, nullptr,            nullptr,             nullptr,        kFewRows + 1};
}

template <typename F>
constexpr Kernel coarse_kernel() {
  return block_kernel<F, Coarse>();
}

template <typename F>
constexpr Kernel fine_kernel() {
  return block_kernel<F, FineOf<F>>();
}

}  // namespace

namespace CORE_VARIANT {
extern const Kernel block_kernels[kBlockFormats], fine_block_kernels[kBlockFormats];
const Kernel block_kernels[kBlockFormats] = CORE_BLOCK_FORMATS(coarse_kernel);
const Kernel fine_block_kernels[kBlockFormats] = CORE_BLOCK_FORMATS(fine_kernel);
}  // namespace CORE_VARIANT
}  // namespace gemm
}  // namespace core
