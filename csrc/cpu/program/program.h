// Programs: many operations in one foreign call.
#pragma once

#include "common/types.h"

extern "C" {

// One operation: an entry of this library and its arguments.
struct core_op {
  void (*function)(const void* args);
  const void* args;
};

struct core_program_args {
  const core_op* ops;
  int64_t count;
  int64_t threads;
  int64_t crew;  // 1: one parallel region for all operations, 0: one per operation that wants threads
};

// Runs the operations in order.
void core_cpu_run(const core_program_args* args);

}  // extern "C"
