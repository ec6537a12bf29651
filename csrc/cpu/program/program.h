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
};

// Runs the operations in order.
void core_cpu_run(const core_program_args* args);

}  // extern "C"
