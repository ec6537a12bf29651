// Replays programs; see program.h.
#include "program/program.h"

#include "common/parallel.h"

CORE_API void core_cpu_run(const core_program_args* args) {
  for (int64_t i = 0; i < args->count; ++i) args->ops[i].function(args->ops[i].args);
}

// Does nothing: what a call costs is measured with it.
CORE_API void core_cpu_nothing(const void*) {}

// Forks and joins a team of `*args` threads that does nothing: likewise.
CORE_API void core_cpu_team(const int64_t* args) {
  core::run_team(*args, [](int64_t, int64_t) {});
}
