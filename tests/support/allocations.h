// Counts what the calling thread allocates, for tests of code that must not.
#pragma once

#include <cstdint>

namespace ebb::testing {

// So many times `new` so far.
int64_t allocations();

}  // namespace ebb::testing
