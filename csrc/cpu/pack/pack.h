// Brings weights into the layout of the products' kernels (gemm/gemm.h, gemm/blocks.h), once, at load.
//
// Panels are 16 rows (output channels); rows that a last panel lacks are zeros. Threads divide the panels.
#pragma once

#include "common/types.h"

struct core_pack_args {
  const void* from;   // (n) rows, `row_bytes` bytes from one to the next
  void* to;           // panels, `panel_bytes` bytes from one to the next
  int64_t n;          // rows
  int64_t k;          // values of a row
  int64_t row_bytes;
  int64_t panel_bytes;
  int64_t format;     // see the entries
  int64_t threads;
};

// Rearranges words or codes. `panel_bytes` may exceed what is written of a panel. `format`:
//
//   0              words of 4 bytes, `k` of them: lines of one word of each row
//   1, 2, 4, 5, 6  unsigned codes of so many bits, one in a byte: the codes of blocks (gemm/blocks.h); no scales
CORE_API void core_cpu_pack(const core_pack_args* args);

// Packs rows of GGUF blocks, codes and scales; what is left of a panel is zeroed. Returns 0, or -1 for a format that it
// does not know. `format` is one of enum core_gemm_format.
CORE_API int64_t core_cpu_pack_blocks(const core_pack_args* args);
