// Replays programs; see program.h.
#include "program/program.h"

#include <chrono>

#include "common/parallel.h"
#include "gemm/gemm.h"
#include "program/checks.h"

namespace {

bool is_gated(const core_op& op) {
  return op.function == reinterpret_cast<void (*)(const void*)>(&core_cpu_gemm_gated);
}

bool is_product(const core_op& op) {
  return is_gated(op) || op.function == reinterpret_cast<void (*)(const void*)>(&core_cpu_gemm);
}

core::Ahead panels_of(const void* w, int64_t n, int64_t format, int64_t k) {
  return {static_cast<const char*>(w), n / 16, core_cpu_gemm_panel(format, k)};
}

// The weights of the first product among the operations from `first` on: most of what a step reads.
core::Ahead next_weights(const core_program_args& program, int64_t first) {
  while (first < program.count && !is_product(program.ops[first])) ++first;
  if (first >= program.count) return {};
  const core_op& op = program.ops[first];
  if (is_gated(op)) {
    auto gated = static_cast<const core_gemm_gated_args*>(op.args);
    return panels_of(gated->w, gated->n, gated->format, gated->k);
  }
  auto product = static_cast<const core_gemm_args*>(op.args);
  return panels_of(product->w, product->n, product->format, product->k);
}

int64_t now() {
  auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

template <typename Args>
bool is_check(const core_op& op, int64_t (*check)(const Args*)) {
  return reinterpret_cast<void (*)()>(op.function) == reinterpret_cast<void (*)()>(check);
}

// Runs an operation; false if it is a check that found something.
bool sound(const core_op& op) {
  if (is_check(op, core_cpu_range)) return core_cpu_range(static_cast<const core_range_args*>(op.args)) == 0;
  if (is_check(op, core_cpu_batch)) return core_cpu_batch(static_cast<const core_batch_args*>(op.args)) == 0;
  if (is_check(op, core_cpu_state_rows)) {
    return core_cpu_state_rows(static_cast<const core_state_rows_args*>(op.args)) == 0;
  }
  op.function(op.args);
  return true;
}

struct Run {
  core_program_args program;
  int64_t* times;   // or null
  int64_t refused;  // the check that ended it, or -1
};

void run_all(void* self) {
  Run& run = *static_cast<Run*>(self);
  core::expect(next_weights(run.program, 0));
  int64_t before = run.times == nullptr ? 0 : now();
  for (int64_t i = 0; i < run.program.count; ++i) {
    const core_op& op = run.program.ops[i];
    if (is_product(op)) core::expect(next_weights(run.program, i + 1));
    if (!sound(op)) {
      run.refused = i;
      return;
    }
    if (run.times == nullptr) continue;
    int64_t after = now();
    run.times[i] += after - before;
    before = after;
  }
}

int64_t run_crew(Run& run) {
  int64_t shared = core::with_crew(run.program.threads, run_all, &run);
  return run.refused < 0 ? shared : -1 - run.refused;
}

}  // namespace

CORE_API int64_t core_cpu_run(const core_program_args* args) {
  Run run{*args, nullptr, -1};
  return run_crew(run);
}

CORE_API int64_t core_cpu_run_timed(const core_timed_args* args) {
  Run run{{args->ops, args->count, args->threads}, args->times, -1};
  return run_crew(run);
}

// Does nothing: what a call costs is measured with it.
CORE_API void core_cpu_nothing(const void*) {}

// Hands `*args` threads a piece each that does nothing: likewise.
CORE_API void core_cpu_team(const int64_t* args) {
  core::run_pieces(*args, *args, [](int64_t, core::Pieces& pieces) {
    for (int64_t piece; pieces.take(&piece);) {
    }
  });
}

CORE_API void core_cpu_counts(int64_t* counts) {
  core::Counts found = core::counts();
  counts[0] = found.rounds;
  counts[1] = found.pieces;
  counts[2] = found.stolen;
}

CORE_API void core_cpu_hold(const int64_t* thread) { core::hold_thread(*thread); }
