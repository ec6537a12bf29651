// Drives the kernels: prepares activations, divides the tiles among threads, merges largest values.
#include "gemm/gemm.h"

#include "common/cpu.h"
#include "common/parallel.h"
#include "elementwise/elementwise.h"
#include "gemm/walk.h"

namespace core {
namespace gemm {
namespace {

constexpr int64_t kThreadWork = 1 << 17;     // multiply-adds below which another thread costs more than it brings
constexpr int64_t kSharedPrepare = 1 << 12;  // activations from which threads share their preparation
constexpr int64_t kGatedRows = 17;           // rows from which results go through their gate without being stored
constexpr int64_t kOwnTiles = 4;             // row tiles for each thread from which rows are divided, not channels

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
  int64_t element = args.x_dtype == CORE_F32 ? 4 : 2;
  space.rows_each = space.ordered + (args.order == nullptr ? 0 : round_up(args.m * args.k * element, 64));
  space.scratch = space.rows_each * (prepared_apart(args) ? threads : 1);
  space.scratch_each = kernel.scratch_bytes == nullptr ? 0 : round_up(kernel.scratch_bytes(args), 64);
  space.best = space.scratch + space.scratch_each * threads;
  space.bytes = space.best + round_up(threads * args.m * static_cast<int64_t>(sizeof(Best)), 64);
  return space;
}

// Threads stand in a grid over rows and channels.
struct Grid {
  int64_t rows, columns;
};

// The grid whose slowest thread has the least tiles; of equals the one with fewest row parts, which reads weights once.
// Many rows are divided (if `by_rows`) even where that is a little less even: then threads share no activations, neither
// here nor with what comes before and after.
Grid grid_of(int64_t threads, int64_t row_tiles, int64_t column_tiles, bool by_rows) {
  Grid best{1, threads};
  int64_t least = row_tiles * ceil_div(column_tiles, threads);
  int64_t tallest = ceil_div(row_tiles, threads) * column_tiles;
  if (by_rows && row_tiles >= kOwnTiles * threads && tallest <= least + least / 8) return {threads, 1};
  for (int64_t rows = 2; rows <= threads; ++rows) {
    if (threads % rows != 0) continue;
    int64_t most = ceil_div(row_tiles, rows) * ceil_div(column_tiles, threads / rows);
    if (most < least) {
      least = most;
      best = {rows, threads / rows};
    }
  }
  return best;
}

struct Plan : Walk {
  core_gemm_args args;
  Workspace space;
  Grid grid;
  int64_t row_tiles, column_tiles;
  bool direct;           // the caller's activations are used as they are
  bool own;              // each thread prepares the rows that it multiplies
  const Gating* gating;  // what becomes of the results, or null
  Best* best;
};

void start_best(Best* best, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) best[row] = {-__builtin_inff(), 0};
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
  mine.call.row_bytes = plan.args.x_stride * (plan.args.x_dtype == CORE_F32 ? 4 : 2);
}

// Makes rows ready in place, for a plan that goes on reading the caller's.
void prepare_own(const Plan& plan, int64_t begin, int64_t end) {
  Plan mine;
  char* rows = static_cast<char*>(plan.args.workspace);
  place(plan, rows, mine);
  prepare(mine, rows, begin, end);
}

// The share of one place of the grid.
void run_part(const Plan& plan, int64_t part) {
  const core_gemm_args& args = plan.args;
  int64_t part_row = part / plan.grid.columns, part_column = part % plan.grid.columns;
  int64_t row_first = plan.row_tiles * part_row / plan.grid.rows;
  int64_t row_last = plan.row_tiles * (part_row + 1) / plan.grid.rows;
  // Panels, not tiles, are divided: the last tile of a share may be narrower, but shares are even.
  int64_t panels = ceil_div(plan.gating == nullptr ? args.n : args.n / 2, kPanel);
  int64_t first = panels * part_column / plan.grid.columns, last = panels * (part_column + 1) / plan.grid.columns;
  Best* best = plan.best == nullptr ? nullptr : plan.best + part_column * args.m;
  if (best != nullptr) start_best(best, row_first * plan.tile_rows, smaller(row_last * plan.tile_rows, args.m));
  char* scratch = static_cast<char*>(args.workspace) + plan.space.scratch + part * plan.space.scratch_each;
  if (plan.space.scratch_each == 0) scratch = nullptr;
  for (int64_t chunk = row_first; chunk < row_last; chunk += plan.chunk) {
    int64_t row_end = smaller(smaller(chunk + plan.chunk, row_last) * plan.tile_rows, args.m);
    if (plan.own) prepare_own(plan, chunk * plan.tile_rows, row_end);
    if (plan.gating != nullptr) {
      plan.kernel->gated(plan.call, {chunk * plan.tile_rows, 0, first, last - first}, row_end, *plan.gating);
      continue;
    }
    walk_panels(plan, chunk * plan.tile_rows, row_end, first, last, scratch, best);
  }
}

void merge_best(const Plan& plan) {
  const core_gemm_args& args = plan.args;
  for (int64_t row = 0; row < args.m; ++row) {
    Best best = plan.best[row];
    for (int64_t column = 1; column < plan.grid.columns; ++column) {
      const Best& other = plan.best[column * args.m + row];
      if (other.value > best.value) best = other;
    }
    args.best[row] = best.channel;
  }
}

int64_t threads_for(const core_gemm_args& args) {
  int64_t useful = args.m * args.n * (args.k > 0 ? args.k : 1) / kThreadWork;
  int64_t threads = smaller(smaller(args.threads, useful), ceil_div(args.n, kPanel) * args.m);
  return threads > 1 ? threads : 1;
}

Plan plan_of(const core_gemm_args& args, const Kernel& kernel, int64_t threads) {
  Plan plan{};
  static_cast<Walk&>(plan) = walk_of(args, kernel);
  plan.args = args;
  plan.space = workspace_of(args, kernel);
  plan.row_tiles = ceil_div(args.m, plan.tile_rows);
  plan.column_tiles = ceil_div(args.n, kernel.panels * kPanel);
  // Panels that are widened first would be so once for each row part.
  bool by_rows = kernel.rows >= kPanel && kernel.expand == nullptr;
  plan.grid = grid_of(threads, plan.row_tiles, plan.column_tiles, by_rows);
  plan.direct = args.order == nullptr && kernel.direct != nullptr && kernel.direct(args);
  plan.own = !plan.direct && !prepared_apart(args) && plan.grid.columns == 1;
  if (args.best != nullptr) plan.best = reinterpret_cast<Best*>(static_cast<char*>(args.workspace) + plan.space.best);
  return plan;
}

void work(const Plan& plan, int64_t thread, int64_t team) {
  if (plan.kernel->enter != nullptr) plan.kernel->enter();
  int64_t parts = plan.grid.rows * plan.grid.columns;
  for (int64_t part = thread; part < parts; part += team) run_part(plan, part);
  if (plan.kernel->leave != nullptr) plan.kernel->leave();
}

// Whatever is outside of the teams may run on each of several threads, see common/parallel.h.
void run(const core_gemm_args& args, const Gating* gating) {
  if (args.m <= 0 || args.n <= 0) return;
  const Kernel& kernel = select(args);
  int64_t threads = threads_for(args);
  Plan plan = plan_of(args, kernel, threads);
  plan.gating = gating;
  bool apart = prepared_apart(args);
  char* workspace = static_cast<char*>(args.workspace);
  if (!plan.direct && !apart && !plan.own) {
    run_team(threads, [&](int64_t thread, int64_t team) {
      Plan mine;
      place(plan, workspace, mine);
      prepare(mine, workspace, args.m * thread / team, args.m * (thread + 1) / team);
    });
  }
  run_team(threads, [&](int64_t thread, int64_t team) {
    char* rows = workspace + (apart ? thread * plan.space.rows_each : 0);
    Plan mine;
    place(plan, rows, mine);
    if (!plan.direct && apart) prepare(mine, rows, 0, args.m);
    work(mine, thread, team);
  });
  if (plan.best != nullptr) merge_best(plan);
}

}  // namespace
}  // namespace gemm
}  // namespace core

CORE_API void core_cpu_gemm(const core_gemm_args* args) { core::gemm::run(*args, nullptr); }

CORE_API void core_cpu_gemm_gated(const core_gemm_gated_args* a) {
  core_gemm_args product{a->x, a->w,        a->order,    a->bias,    a->y,       nullptr,   a->workspace, a->m,
                         a->n, a->k,        a->x_stride, a->y_stride, a->x_dtype, a->y_dtype, a->format,    a->threads};
  bool whole = a->n % (2 * core::gemm::kPanel) == 0 && a->y_dtype == CORE_BF16;
  if (a->m >= core::gemm::kGatedRows && whole && core::gemm::select(product).gated != nullptr) {
    core::gemm::Gating gating{a->out, a->out_stride, a->activation};
    return core::gemm::run(product, &gating);
  }
  core_cpu_gemm(&product);
  core_gated_args gated{a->y,        a->out,        a->m,          a->n / 2,   a->y_stride,
                        a->out_stride, a->activation, a->y_dtype, a->threads};
  core_cpu_gated(&gated);
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

CORE_API int64_t core_cpu_gemm_panel(int64_t format, int64_t k) { return core::gemm::panel_bytes(format, k); }
