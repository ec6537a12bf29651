// Replays programs; see program.h.
#include "program/program.h"

#include "common/parallel.h"

namespace {

void run_in_order(const core_program_args& program) {
  for (int64_t i = 0; i < program.count; ++i) program.ops[i].function(program.ops[i].args);
}

}  // namespace

CORE_API void core_cpu_run(const core_program_args* args) {
  if (args->crew == 0 || args->threads <= 1) return run_in_order(*args);
  struct Call {
    const core_program_args* program;
    core::Crew crew;
  } call{args, {}};
  core::fork_team(
      args->threads,
      [](void* data, int64_t thread, int64_t team) {
        auto self = static_cast<Call*>(data);
        if (thread != 0) return self->crew.serve(thread);
        self->crew.open(team);
        core::Crew::lead(team > 1 ? &self->crew : nullptr);
        run_in_order(*self->program);
        core::Crew::lead(nullptr);
        self->crew.dismiss();
      },
      &call);
}

// Does nothing: what a call costs is measured with it.
CORE_API void core_cpu_nothing(const void*) {}

// Forks and joins a team of `*args` threads that does nothing: likewise.
CORE_API void core_cpu_team(const int64_t* args) {
  core::run_team(*args, [](int64_t, int64_t) {});
}
