// Programs: many operations in one foreign call.
#pragma once

#include "common/types.h"

extern "C" {

// One operation: an entry of this library, or of another one with the same kind of arguments.
struct core_op {
  void (*function)(const void* args);
  const void* args;
};

struct core_program_args {
  const core_op* ops;
  int64_t count;
  int64_t threads;  // most that an operation uses
};

// Runs the operations in order, all with one crew; see common/parallel.h. Returns how many rounds the team
// shared: each costs a hand-over and a join, and nothing else is waited for. A check (checks.h) that finds something ends the run: what is returned is
// then -1 - its place among the operations.
int64_t core_cpu_run(const core_program_args* args);

// The same, and adds the nanoseconds of each operation to `times[operation]`.
struct core_timed_args {
  const core_op* ops;
  int64_t* times;  // (count)
  int64_t count;
  int64_t threads;
};

int64_t core_cpu_run_timed(const core_timed_args* args);

// What teams have done since the library was loaded: rounds, their pieces, and how often a thread took from another
// one's share. `counts`: (3).
void core_cpu_counts(int64_t* counts);

// For tests: from now on thread `*thread` keeps the first piece of its share until others have computed all the rest of
// it; -1: none does.
void core_cpu_hold(const int64_t* thread);

}  // extern "C"
