// Products of each token with the weights of its experts; see experts.h.
//
// One hand-out to the threads: each has a contiguous share of all tiles of all experts, brings the rows of its experts
// into the kernel's form itself, and waits for nobody.
#include "common/parallel.h"
#include "experts/experts.h"
#include "experts/product.h"

namespace core {
namespace experts {
namespace {

constexpr int64_t kTilesEach = 4;  // of a piece: its rows are prepared once more, which hardly counts beside so many

int64_t panels_of(const core_experts_in_args& a) { return ceil_div(a.n, kPanel); }

// An expert's tiles: so many for its rows, each of so many panels, so many for all of its panels.
struct Tiles {
  int64_t down, panels, across;

  int64_t count() const { return down * across; }
};

Tiles tiles_of(const core_experts_in_args& a, const Order& order, int64_t expert) {
  core_gemm_args args = expert_args(a, order, expert);
  const Kernel& kernel = gemm::select(args);
  return {ceil_div(args.m, gemm::walk_of(args, kernel).tile_rows), kernel.panels,
          ceil_div(panels_of(a), kernel.panels)};
}

int64_t total_tiles(const core_experts_in_args& a, const Order& order) {
  int64_t total = 0;
  for (int64_t expert = 0; expert < a.experts; ++expert) {
    if (order.count(expert) > 0) total += tiles_of(a, order, expert).count();
  }
  return total;
}

void run_expert(const core_experts_in_args& a, const Order& order, int64_t expert, int64_t first, int64_t last,
                const Needs& needs, char* own) {
  core_gemm_args args = expert_args(a, order, expert);
  int64_t start = order.starts[expert];
  args.y = static_cast<char*>(a.y) + start * a.y_stride * element_bytes(a.y_dtype);
  args.y_stride = a.y_stride;
  Source source{static_cast<const char*>(a.x), a.x_stride * element_bytes(a.x_dtype), order.pairs + start, a.top_k};
  multiply(args, source, nullptr, first, last, needs, own);
}

// Tiles `begin .. end - 1` of all. Panels are whole, and those of a tile stay together: which panels are multiplied
// side by side, which may change the last bit, then depends neither on other tokens nor on the threads.
void run_share(const core_experts_in_args& a, const Order& order, int64_t begin, int64_t end, const Needs& needs,
               char* own) {
  int64_t at = 0;
  for (int64_t expert = 0; expert < a.experts && at < end; ++expert) {
    if (order.count(expert) == 0) continue;
    Tiles tiles = tiles_of(a, order, expert);
    int64_t first = smaller(ceil_div(larger(begin - at, 0), tiles.down), tiles.across);
    int64_t last = smaller(ceil_div(end - at, tiles.down), tiles.across);
    if (first < last) {
      int64_t behind = smaller(last * tiles.panels, panels_of(a));
      run_expert(a, order, expert, first * tiles.panels, behind, needs, own);
    }
    at += tiles.count();
  }
}

// Pieces of a thread's share of so many tiles.
int64_t pieces_each(const core_experts_in_args& a, const Order& order, int64_t tiles) {
  int64_t present = 0;
  for (int64_t expert = 0; expert < a.experts; ++expert) present += order.count(expert) > 0 ? 1 : 0;
  int64_t rows = order.starts[a.experts] / larger(present, 1);
  int64_t bytes = tiles * gemm::kMostPanels * gemm::panel_bytes(a.format, a.k);
  return gemm::worth(bytes, rows, tiles / kTilesEach);
}

void clear_rest(const core_experts_in_args& a, const Order& order, int64_t rows) {
  int64_t element = element_bytes(a.y_dtype);
  for (int64_t row = order.starts[a.experts]; row < rows; ++row) {
    std::memset(static_cast<char*>(a.y) + row * a.y_stride * element, 0, static_cast<size_t>(a.n * element));
  }
}

void run(const core_experts_in_args& a) {
  int64_t rows = a.tokens * a.top_k;
  if (rows <= 0 || a.n <= 0) return;
  Order order = order_at(static_cast<char*>(a.workspace), rows, a.experts);
  sort_pairs(a.ids, rows, a.experts, order);
  Needs needs = needs_of(common_args(a), rows);
  char* own = static_cast<char*>(a.workspace) + order_bytes(rows, a.experts);
  int64_t total = total_tiles(a, order), threads = smaller(threads_for(a.threads, rows, a.n, a.k), larger(total, 1));
  int64_t count = threads == 1 ? 1 : threads * pieces_each(a, order, total / threads);
  run_pieces(threads, count, [&](int64_t thread, Pieces& pieces) {
    for (int64_t piece; pieces.take(&piece);) {
      run_share(a, order, total * piece / count, total * (piece + 1) / count, needs, own + thread * needs.bytes());
    }
    if (thread == 0) clear_rest(a, order, rows);
  });
}

}  // namespace
}  // namespace experts
}  // namespace core

CORE_API void core_cpu_experts_in(const core_experts_in_args* args) { core::experts::run(*args); }

CORE_API int64_t core_cpu_experts_in_workspace(const core_experts_in_args* a) {
  using namespace core::experts;
  int64_t rows = a->tokens * a->top_k;
  return order_bytes(rows, a->experts) + larger(a->threads, 1) * needs_of(common_args(*a), rows).bytes();
}
