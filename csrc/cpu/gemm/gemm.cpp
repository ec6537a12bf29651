// Drives the kernels: prepares activations, hands pieces of the result to threads, merges largest values.
#include "gemm/gemm.h"

#include "common/cpu.h"
#include "common/parallel.h"
#include "elementwise/elementwise.h"
#include "gemm/cut.h"

namespace core {
namespace gemm {
namespace {

constexpr int64_t kThreadWork = 1 << 17;     // multiply-adds below which another thread costs more than it brings
constexpr int64_t kSharedPrepare = 1 << 12;  // activations from which threads share their preparation
constexpr int64_t kGatedRows = 17;           // rows from which results go through their gate without being stored
constexpr int64_t kStoredRows = 512;         // rows of which results are stored before they go through it

// Few activations are prepared by every thread for itself, which costs less than to wait for each other.
bool prepared_apart(const core_gemm_args& args) { return args.m <= 1 || args.m * args.k < kSharedPrepare; }

// How the workspace is divided. `rows_each` and `scratch_each` are per thread, the former where rows are prepared apart.
struct Workspace {
  int64_t ordered, rows_each, scratch, scratch_each, best, bytes;  // those without `each` are offsets
};

Workspace workspace_of(const core_gemm_args& args, const Kernel& kernel) {
  Workspace space{};
  int64_t threads = args.threads > 1 ? args.threads : 1;
  space.ordered = round_up(kernel.row_bytes(args) * round_up(args.m, kernel.rows), 64);
  int64_t bytes = args.m * args.k * element_bytes(args.x_dtype);
  space.rows_each = space.ordered + (args.order == nullptr ? 0 : round_up(bytes, 64));
  space.scratch = space.rows_each * (prepared_apart(args) ? threads : 1);
  space.scratch_each = kernel.scratch_bytes == nullptr ? 0 : round_up(kernel.scratch_bytes(args), 64);
  space.best = space.scratch + space.scratch_each * threads;
  space.bytes = space.best + round_up(2 * threads * args.m * static_cast<int64_t>(sizeof(Best)), 64);
  return space;
}

struct Plan : Walk {
  core_gemm_args args;
  Workspace space;
  Cut cut;
  bool direct;           // the caller's activations are used as they are
  const Gating* gating;  // what becomes of the results, or null
  Best* best;            // of each thread: see Bests
};

// The largest values of the rows in the pieces of one thread: in all, and in the piece that it is at.
struct Bests {
  Best *all, *piece;
};

Bests bests_of(const Plan& plan, int64_t thread) {
  Best* all = plan.best + 2 * thread * plan.args.m;
  return {all, all + plan.args.m};
}

void start_best(Best* best, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) best[row] = {-__builtin_inff(), 0};
}

// Of equals the lowest channel, in whatever order pieces are taken.
void keep_best(Best& best, const Best& other) {
  if (other.value > best.value || (other.value == best.value && other.channel < best.channel)) best = other;
}

// Brings rows into the order of the packed weight's inputs.
template <typename T>
void reorder(const core_gemm_args& args, T* to, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* from = static_cast<const T*>(args.x) + row * args.x_stride;
    for (int64_t i = 0; i < args.k; ++i) to[row * args.k + i] = from[args.order[i]];
  }
}

// Makes rows `begin .. end - 1` ready; they lie at `rows` in the workspace.
void prepare(Plan& plan, char* rows, int64_t begin, int64_t end) {
  core_gemm_args& args = plan.args;
  if (args.order != nullptr) {
    char* ordered = rows + plan.space.ordered;
    if (args.x_dtype == CORE_F32) {
      reorder(args, reinterpret_cast<float*>(ordered), begin, end);
    } else {
      reorder(args, reinterpret_cast<bf16*>(ordered), begin, end);
    }
    args.x = ordered;
    args.x_stride = args.k;
  }
  plan.kernel->prepare(plan.call, begin, end);
}

// Makes `mine` a copy of the plan for one thread, which reads prepared rows at `rows`.
void place(const Plan& plan, const char* rows, Plan& mine) {
  mine = plan;
  mine.call.args = &mine.args;
  mine.call.rows = rows;
  if (!plan.direct) return;
  mine.call.rows = static_cast<const char*>(plan.args.x);
  mine.call.row_bytes = plan.args.x_stride * element_bytes(plan.args.x_dtype);
}

// Makes rows ready in place, for a plan that goes on reading the caller's.
void prepare_own(const Plan& plan, int64_t begin, int64_t end) {
  Plan mine;
  char* rows = static_cast<char*>(plan.args.workspace);
  place(plan, rows, mine);
  prepare(mine, rows, begin, end);
}

// One piece. `scratch` and `best`: those of the thread, or null.
void run_piece(const Plan& plan, int64_t piece, char* scratch, const Bests* best) {
  const core_gemm_args& args = plan.args;
  Part part = plan.cut.piece(piece);
  int64_t begin = part.row * plan.tile_rows, end = smaller(part.row_end * plan.tile_rows, args.m);
  if (best != nullptr) start_best(best->piece, begin, end);
  for (int64_t row = begin, step = plan.chunk * plan.tile_rows; row < end; row += step) {
    int64_t row_end = smaller(row + step, end);
    if (plan.cut.by_rows) prepare_own(plan, row, row_end);
    if (plan.gating != nullptr) {
      plan.kernel->gated(plan.call, {row, 0, part.panel, part.panel_end - part.panel}, row_end, *plan.gating);
      continue;
    }
    walk_panels(plan, row, row_end, part.panel, part.panel_end, scratch, best == nullptr ? nullptr : best->piece);
  }
  for (int64_t row = begin; best != nullptr && row < end; ++row) keep_best(best->all[row], best->piece[row]);
}

// Says for each thread that it has taken nothing; those that do begin with `start_best`.
void start_bests(const Plan& plan, int64_t threads) {
  for (int64_t thread = 0; thread < threads; ++thread) bests_of(plan, thread).all[0].channel = -1;
}

void merge_bests(const Plan& plan, int64_t threads) {
  const core_gemm_args& args = plan.args;
  Best* first = bests_of(plan, 0).all;  // the caller's: it takes part in any case
  for (int64_t thread = 1; thread < threads; ++thread) {
    const Best* other = bests_of(plan, thread).all;
    if (other[0].channel < 0) continue;
    for (int64_t row = 0; row < args.m; ++row) keep_best(first[row], other[row]);
  }
  for (int64_t row = 0; row < args.m; ++row) args.best[row] = first[row].channel;
}

int64_t threads_for(const core_gemm_args& args) {
  int64_t useful = args.m * args.n * (args.k > 0 ? args.k : 1) / kThreadWork;
  int64_t threads = smaller(smaller(args.threads, useful), ceil_div(args.n, kPanel) * args.m);
  return threads > 1 ? threads : 1;
}

int64_t panels_of(const core_gemm_args& args, const Gating* gating) {
  return ceil_div(gating == nullptr ? args.n : args.n / 2, kPanel);
}

// `prepared`: whether the rows are there before pieces are handed out, or for each thread.
Cut cut_of(const core_gemm_args& args, const Walk& walk, int64_t threads, const Gating* gating, bool prepared) {
  const Kernel& kernel = *walk.kernel;
  Cut cut{};
  cut.row_tiles = ceil_div(args.m, walk.tile_rows);
  cut.panels = panels_of(args, gating);
  // Panels that are widened first would be so once for each row part.
  bool by_rows = kernel.rows >= kPanel && kernel.expand == nullptr;
  cut.grid = grid_of(threads, cut.row_tiles, ceil_div(args.n, kernel.panels * kPanel), by_rows);
  cut.by_rows = !prepared && cut.grid.columns == 1;
  cut.step = cut.by_rows ? kRowSteps : kernel.panels;
  cut.each = 1;
  if (threads == 1) return cut;
  int64_t least = cut.by_rows ? cut.row_tiles / cut.grid.rows : cut.panels / cut.grid.columns;
  int64_t bytes = args.n / kPanel * walk.call.panel_bytes / cut.grid.columns;
  cut.each = worth(bytes, args.m / cut.grid.rows, least / cut.step);
  return cut;
}

Plan plan_of(const core_gemm_args& args, const Kernel& kernel, const Gating* gating, int64_t threads) {
  Plan plan{};
  static_cast<Walk&>(plan) = walk_of(args, kernel);
  plan.args = args;
  plan.space = workspace_of(args, kernel);
  plan.direct = args.order == nullptr && kernel.direct != nullptr && kernel.direct(args);
  plan.cut = cut_of(args, plan, threads, gating, plan.direct || prepared_apart(args));
  plan.gating = gating;
  if (args.best != nullptr) plan.best = reinterpret_cast<Best*>(static_cast<char*>(args.workspace) + plan.space.best);
  return plan;
}

// What one thread does of a product whose rows are prepared.
void work(const Plan& plan, int64_t thread, Pieces& pieces) {
  char* scratch = static_cast<char*>(plan.args.workspace) + plan.space.scratch + thread * plan.space.scratch_each;
  if (plan.space.scratch_each == 0) scratch = nullptr;
  Bests best{};
  if (plan.best != nullptr) {
    best = bests_of(plan, thread);
    start_best(best.all, 0, plan.args.m);
  }
  if (plan.kernel->enter != nullptr) plan.kernel->enter();
  for (int64_t piece; pieces.take(&piece);) run_piece(plan, piece, scratch, plan.best == nullptr ? nullptr : &best);
  if (plan.kernel->leave != nullptr) plan.kernel->leave();
}

// Whatever is outside of bodies runs on one thread, see common/parallel.h.
void run(const core_gemm_args& args, const Gating* gating) {
  if (args.m <= 0 || args.n <= 0) return;
  const Kernel& kernel = select(args);
  int64_t threads = threads_for(args);
  Plan plan = plan_of(args, kernel, gating, threads);
  bool apart = prepared_apart(args);
  char* workspace = static_cast<char*>(args.workspace);
  if (!plan.direct && !apart && !plan.cut.by_rows) {
    int64_t rows = smaller(ceil_div(kSharedPrepare, args.k), args.m / threads);
    parallel_for(args.m, threads, rows > 1 ? rows : 1, [&](int64_t begin, int64_t end) {
      Plan mine;
      place(plan, workspace, mine);
      prepare(mine, workspace, begin, end);
    });
  }
  if (plan.best != nullptr) start_bests(plan, threads);
  run_pieces(threads, plan.cut.pieces(), [&](int64_t thread, Pieces& pieces) {
    char* rows = workspace + (apart ? thread * plan.space.rows_each : 0);
    Plan mine;
    place(plan, rows, mine);
    if (!plan.direct && apart) prepare(mine, rows, 0, args.m);
    work(mine, thread, pieces);
  });
  if (plan.best != nullptr) merge_bests(plan, threads);
}

core_gemm_args product_of(const core_gemm_gated_args& a) {
  return {a.x, a.w, a.order,    a.bias,     a.y,       nullptr,   a.workspace, a.m,
          a.n, a.k, a.x_stride, a.y_stride, a.x_dtype, a.y_dtype, a.format,    a.threads};
}

// Whether results go through their gate without being stored.
bool gates_at_once(const core_gemm_gated_args& args) {
  bool whole = args.n % (2 * kPanel) == 0 && args.y_dtype == CORE_BF16;
  return args.m >= kGatedRows && whole && select(product_of(args)).gated != nullptr;
}

// The product of rows `begin .. end - 1`, stored from the first row of y on, then through its gate.
void run_stored(const core_gemm_gated_args& args, int64_t begin, int64_t end) {
  core_gemm_args product = product_of(args);
  product.x = static_cast<const char*>(args.x) + begin * args.x_stride * element_bytes(args.x_dtype);
  product.m = end - begin;
  run(product, nullptr);
  char* out = static_cast<char*>(args.out) + begin * args.out_stride * element_bytes(args.y_dtype);
  core_gated_args gated{args.y,          out,  end - begin, args.n / 2, args.y_stride, args.out_stride,
                        args.activation, args.y_dtype, args.threads};
  core_cpu_gated(&gated);
}

}  // namespace
}  // namespace gemm
}  // namespace core

CORE_API void core_cpu_gemm(const core_gemm_args* args) { core::gemm::run(*args, nullptr); }

CORE_API void core_cpu_gemm_gated(const core_gemm_gated_args* args) {
  using namespace core::gemm;
  if (gates_at_once(*args)) {
    Gating gating{args->out, args->out_stride, args->activation};
    return run(product_of(*args), &gating);
  }
  // Runs of even length: what is left of many rows must not be multiplied as few are.
  int64_t runs = core::ceil_div(args->m, kStoredRows);
  for (int64_t i = 0; i < runs; ++i) run_stored(*args, args->m * i / runs, args->m * (i + 1) / runs);
}

CORE_API int64_t core_cpu_gemm_gated_rows(const core_gemm_gated_args* args) {
  using namespace core::gemm;
  return smaller(args->m, gates_at_once(*args) ? kLastChange : kStoredRows);
}

CORE_API int64_t core_cpu_gemm_workspace(const core_gemm_args* args) {
  int64_t most = 0;
  auto consider = [&](int64_t rows) {
    core_gemm_args fewer = *args;
    fewer.m = rows;
    int64_t bytes = rows <= 0 ? 0 : core::gemm::workspace_of(fewer, core::gemm::select(fewer)).bytes;
    if (bytes > most) most = bytes;
  };
  // Fewer rows may mean another kernel, or rows that each thread prepares for itself, with a larger need.
  for (int64_t rows = 1; rows < args->m && rows <= core::gemm::kLastChange; ++rows) consider(rows);
  int64_t apart = args->k > 0 ? (core::gemm::kSharedPrepare - 1) / args->k : args->m;
  consider(apart < args->m ? apart : args->m - 1);
  consider(args->m - 1);
  consider(args->m);
  return most;
}

CORE_API int64_t core_cpu_gemm_pieces(const core_gemm_pieces_args* a) {
  using namespace core::gemm;
  const core_gemm_args& args = *a->product;
  if (args.m <= 0 || args.n <= 0) return 0;
  const Kernel& kernel = select(args);
  Plan plan = plan_of(args, kernel, nullptr, threads_for(args));
  int64_t count = plan.cut.pieces();
  for (int64_t piece = 0; piece < core::gemm::smaller(count, a->room); ++piece) {
    Part part = plan.cut.piece(piece);
    int64_t* out = a->pieces + 4 * piece;
    out[0] = part.row * plan.tile_rows;
    out[1] = smaller(part.row_end * plan.tile_rows, args.m);
    out[2] = part.panel;
    out[3] = part.panel_end;
  }
  return count;
}

CORE_API int64_t core_cpu_gemm_panel(int64_t format, int64_t k) { return core::gemm::panel_bytes(format, k); }
