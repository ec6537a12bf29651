// Products with the weights of experts, weighed and summed up for each token; see experts.h.
//
// Each thread has some of the outputs, of all experts: it multiplies so many of them at a time that the results of all
// rows stay at hand, and adds these up. So weights are read once, results are shared with nobody, and threads have
// equal work however the tokens are spread. Where rows are first brought into another form and they are many, threads
// share that.
#include "common/parallel.h"
#include "experts/experts.h"
#include "experts/product.h"
#include "experts/rows.h"

namespace core {
namespace experts {
namespace {

constexpr int64_t kResultBytes = 4 << 20;    // of one thread at a time
constexpr int64_t kLeastPanels = 4;          // a full tile's, whatever that takes; more are a multiple of it
constexpr int64_t kSharedPrepare = 1 << 17;  // activations from which threads share their preparation
constexpr int64_t kPrepareEach = 4;          // pieces of a thread's share of that
constexpr int64_t kRowsAgain = 16;           // panels of a piece by which rows prepared once more hardly count

int64_t panels_of(const core_experts_out_args& a) { return ceil_div(a.n, kPanel); }

core_gemm_args product_args(const core_experts_out_args& a) {
  core_gemm_args args = common_args(a);
  args.y_dtype = CORE_F32;
  return args;
}

bool prepared_together(const core_experts_out_args& a, int64_t rows) { return rows * a.k >= kSharedPrepare; }

// Panels whose results a thread keeps at a time.
int64_t block_panels(const core_experts_out_args& a, int64_t rows) {
  int64_t most = kResultBytes / (rows * kPanel * 4);
  return smaller(larger(most - most % kLeastPanels, kLeastPanels), panels_of(a));
}

// How the workspace is divided: the order, rows prepared together, then for each thread what `needs_of` says and its
// results. All of it is no less for more tokens.
struct Space {
  Needs needs;
  int64_t prepared, own, own_each;
};

Space space_of(const core_experts_out_args& a, int64_t rows) {
  Space space{};
  space.needs = needs_of(product_args(a), rows);
  space.prepared = order_bytes(rows, a.experts);
  // Tiles of different experts share no rows.
  int64_t padded = rows + smaller(rows, a.experts) * (gemm::kMostRows - 1);
  space.own = space.prepared + (prepared_together(a, rows) ? round_up(padded * space.needs.row_bytes, 64) : 0);
  int64_t row_bytes = rows * kPanel * 4, all = row_bytes * panels_of(a);
  int64_t results = larger(smaller(all, kResultBytes), row_bytes * smaller(kLeastPanels, panels_of(a)));
  space.own_each = space.needs.bytes() + results;
  return space;
}

struct Plan {
  core_experts_out_args a;
  Order order;
  Space space;
  int64_t rows;
  bool together;  // rows are prepared before they are multiplied
};

// Calls `each(expert, first row, its product, where its rows are prepared)` for every expert that has rows.
template <typename Each>
void for_experts(const Plan& plan, const Each& each) {
  char* prepared = static_cast<char*>(plan.a.workspace) + plan.space.prepared;
  for (int64_t expert = 0; expert < plan.a.experts; ++expert) {
    int64_t count = plan.order.count(expert);
    if (count == 0) continue;
    core_gemm_args args = expert_args(plan.a, plan.order, expert);
    args.y_dtype = CORE_F32;
    each(plan.order.starts[expert], args, prepared);
    prepared += round_up(count, gemm::kMostRows) * plan.space.needs.row_bytes;
  }
}

Source source_of(const core_experts_out_args& a, int64_t start) {
  int64_t row_bytes = a.x_stride * element_bytes(a.x_dtype);
  return {static_cast<const char*>(a.x) + start * row_bytes, row_bytes, nullptr, 1};
}

// Rows `begin .. end - 1` of all, each for its expert's kernel.
void prepare_rows(const Plan& plan, int64_t begin, int64_t end) {
  for_experts(plan, [&](int64_t start, const core_gemm_args& args, char* prepared) {
    Source source = source_of(plan.a, start);
    const Kernel& kernel = gemm::select(args);
    int64_t first = larger(begin - start, 0), last = smaller(end - start, args.m);
    if (first >= last || usable(kernel, args, source)) return;
    Walk walk = gemm::walk_of(args, kernel);
    walk.call.rows = prepared;
    prepare(walk, args, source, first, last);
  });
}

// Results of panels `first .. last - 1` for all rows, `(last - first) * 16` floats apart.
void multiply_block(const Plan& plan, int64_t first, int64_t last, float* results, char* own) {
  int64_t panel = gemm::panel_bytes(plan.a.format, plan.a.k), stride = (last - first) * kPanel;
  for_experts(plan, [&](int64_t start, core_gemm_args& args, const char* prepared) {
    args.w = static_cast<const char*>(args.w) + first * panel;
    args.bias = args.bias == nullptr ? nullptr : args.bias + first * kPanel;
    args.n = smaller(plan.a.n - first * kPanel, stride);
    args.y = results + start * stride;
    args.y_stride = stride;
    Source source = source_of(plan.a, start);
    multiply(args, source, plan.together ? prepared : nullptr, 0, last - first, plan.space.needs, own);
  });
}

void sum_block(const Plan& plan, int64_t first, int64_t last, const float* results) {
  const core_experts_out_args& a = plan.a;
  Weighed weighed{results, (last - first) * kPanel, plan.order.rows, a.weights, a.tokens, a.top_k, nullptr, a.y_stride,
                  smaller(a.n - first * kPanel, (last - first) * kPanel), a.y_dtype};
  weighed.y = static_cast<char*>(a.y) + first * kPanel * element_bytes(a.y_dtype);
  sum_weighed()(weighed);
}

// Panels `first .. last - 1`, some at a time.
void run_panels(const Plan& plan, int64_t first, int64_t last, char* own) {
  auto results = reinterpret_cast<float*>(own + plan.space.needs.bytes());
  for (int64_t step = block_panels(plan.a, plan.rows); first < last; first += step) {
    int64_t behind = smaller(first + step, last);
    multiply_block(plan, first, behind, results, own);
    sum_block(plan, first, behind, results);
  }
}

// Pieces of a thread's share of so many panels: every expert's weights are read by each of them.
int64_t pieces_each(const core_experts_out_args& a, const Order& order, int64_t panels) {
  int64_t present = 0;
  for (int64_t expert = 0; expert < a.experts; ++expert) present += order.count(expert) > 0 ? 1 : 0;
  int64_t bytes = present * panels * gemm::panel_bytes(a.format, a.k);
  return gemm::worth(bytes, order.starts[a.experts] / larger(present, 1), panels / kRowsAgain);
}

void run(const core_experts_out_args& a) {
  int64_t rows = a.tokens * a.top_k, panels = panels_of(a);
  if (rows <= 0 || a.n <= 0) return;
  char* workspace = static_cast<char*>(a.workspace);
  Plan plan{a, order_at(workspace, rows, a.experts), space_of(a, rows), rows, prepared_together(a, rows)};
  sort_pairs(a.ids, rows, a.experts, plan.order);
  int64_t threads = smaller(threads_for(a.threads, rows, a.n, a.k), panels);
  if (plan.together) {
    parallel_for(rows, threads, larger(rows / (threads * kPrepareEach), 1), [&](int64_t begin, int64_t end) {
      prepare_rows(plan, begin, end);
    });
  }
  // What is multiplied side by side depends on the threads that were asked for, not on those that came.
  int64_t each = threads == 1 ? 1 : pieces_each(a, plan.order, panels / threads);
  run_pieces(threads, threads * each, [&](int64_t thread, Pieces& pieces) {
    char* own = workspace + plan.space.own + thread * plan.space.own_each;
    for (int64_t piece; pieces.take(&piece);) {
      int64_t share = piece / each, at = piece % each;
      int64_t first = panels * share / threads, steps = ceil_div(panels * (share + 1) / threads - first, kLeastPanels);
      int64_t last = smaller(first + steps * (at + 1) / each * kLeastPanels, panels * (share + 1) / threads);
      run_panels(plan, first + steps * at / each * kLeastPanels, last, own);
    }
  });
}

}  // namespace
}  // namespace experts
}  // namespace core

CORE_API void core_cpu_experts_out(const core_experts_out_args* args) { core::experts::run(*args); }

CORE_API int64_t core_cpu_experts_out_workspace(const core_experts_out_args* args) {
  int64_t rows = args->tokens * args->top_k;
  core::experts::Space space = core::experts::space_of(*args, rows);
  return space.own + space.own_each * (args->threads > 1 ? args->threads : 1);
}
