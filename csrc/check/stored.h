// Products of formats whose rows `core_cpu_lookup` decodes, with plain code: every format, from random bytes.
#pragma once

#include <cmath>
#include <cstdlib>
#include <vector>

#include "gemm/gemm.h"
#include "gemm/kernel.h"

namespace {

// Codes are any bytes, but no float8 that is no number. Scales are bytes from 0x28 to 0x2f, which are small positive
// numbers as float32, float16 and e4m3 and as an exponent.
inline void fill_panels(int64_t format, int64_t inputs, int64_t panels, char* to) {
  int64_t panel = core_cpu_gemm_panel(format, inputs), lines = core::gemm::line_bytes(format, inputs);
  bool float8 = (format >= CORE_GEMM_E4M3 && format <= CORE_GEMM_E4M3_32) || format >= CORE_GEMM_E5M2;
  for (int64_t i = 0; i < panels * panel; ++i) {
    int byte = i % panel < lines ? std::rand() >> 4 & (float8 ? 0xbf : 0xff) : 0x28 + (std::rand() >> 4 & 7);
    to[i] = static_cast<char>(byte);
  }
}

// The error of a product of `rows` rows, relative to the results' 2-norm. `asked`: flags of the format.
inline double stored_product_error(int64_t format, int64_t asked, int64_t rows) {
  constexpr int64_t n = 40, k = 512, panels = 3;
  std::srand(3);
  std::vector<char> packed(panels * core_cpu_gemm_panel(format, k) + 64);
  char* w = packed.data() + (64 - reinterpret_cast<uintptr_t>(packed.data()) % 64) % 64;
  fill_panels(format, k, panels, w);
  std::vector<float> x(rows * k), y(rows * n), weight(n * k);
  for (float& value : x) value = static_cast<float>(std::rand() % 2001 - 1000) / 1000.0f;
  std::vector<int64_t> ids(n);
  for (int64_t i = 0; i < n; ++i) ids[i] = i;
  core_lookup_args lookup{w, ids.data(), weight.data(), n, k, CORE_F32, format, 1};
  core_cpu_lookup(&lookup);
  core_gemm_args args{x.data(), w, nullptr, nullptr, y.data(), nullptr, nullptr,        rows,
                      n,        k, k,       n,       CORE_F32, CORE_F32, format | asked, 1};
  std::vector<char> workspace(core_cpu_gemm_workspace(&args) + 64);
  args.workspace = workspace.data() + (64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64) % 64;
  core_cpu_gemm(&args);
  double wrong = 0.0, size = 0.0;
  for (int64_t i = 0; i < rows * n; ++i) {
    double wanted = 0.0;
    for (int64_t j = 0; j < k; ++j) wanted += static_cast<double>(x[i / n * k + j]) * weight[i % n * k + j];
    wrong += (y[i] - wanted) * (y[i] - wanted);
    size += wanted * wanted;
  }
  return std::sqrt(wrong / size);
}

}  // namespace
