// The CPU as tests open it.
#pragma once

#include "runtime/context.h"

namespace ebb::testing {

// Two threads: what tests compare does not depend on the machine, and they run side by side.
inline Context cpu() { return open_context("cpu", {.threads = 2}); }

}  // namespace ebb::testing
