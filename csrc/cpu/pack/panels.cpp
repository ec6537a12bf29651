// Words and codes that are read already, line by line.
#include "pack/lines.h"
#include "pack/pack.h"

namespace core {
namespace pack {
namespace {

const uint8_t* row_of(const core_pack_args& args, int64_t row) {
  return static_cast<const uint8_t*>(args.from) + row * args.row_bytes;
}

// Words of 16 rows; 16 words of each at a time, so that a row's are of one cache line.
void pack_words(const core_pack_args& args, int64_t panel, char* to) {
  int64_t first = panel * kRows, rows = args.n - first < kRows ? args.n - first : kRows;
  if (rows < kRows) std::memset(to, 0, static_cast<size_t>(args.k * kLine));
  for (int64_t word = 0; word < args.k; word += 16) {
    int64_t end = args.k - word < 16 ? args.k : word + 16;
    for (int64_t row = 0; row < rows; ++row) {
      const uint8_t* from = row_of(args, first + row);
      for (int64_t w = word; w < end; ++w) std::memcpy(to + w * kLine + row * 4, from + w * 4, 4);
    }
  }
}

template <int bits>
void pack_codes(const core_pack_args& args, int64_t panel, char* to) {
  int64_t first = panel * kRows, rows = args.n - first < kRows ? args.n - first : kRows;
  uint8_t whole[kRows * kInputs] = {};
  for (int64_t input = 0; input < args.k; input += kInputs) {
    if (rows == kRows) {
      to += store_block<bits>(row_of(args, first) + input, args.row_bytes, to);
      continue;
    }
    for (int64_t row = 0; row < rows; ++row) std::memcpy(whole + row * kInputs, row_of(args, first + row) + input, kInputs);
    to += store_block<bits>(whole, kInputs, to);
  }
}

typedef void Pack(const core_pack_args&, int64_t, char*);

// By `format`; null where it is none.
constexpr Pack* kPacks[] = {&pack_words, &pack_codes<1>, &pack_codes<2>, &pack_codes<3>,
                            &pack_codes<4>, &pack_codes<5>, &pack_codes<6>};

}  // namespace
}  // namespace pack
}  // namespace core

CORE_API void core_cpu_pack(const core_pack_args* args) {
  using namespace core::pack;
  Pack* pack = kPacks[args->format];
  each_panel(*args, [&](int64_t panel) {
    pack(*args, panel, static_cast<char*>(args->to) + panel * args->panel_bytes);
  });
}
