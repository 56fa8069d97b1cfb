// How large texts are that must not take long.
#pragma once

#include <cstddef>

namespace ebb::testing {

// A megabyte; under sanitizers, which look for other faults, an eighth.
#ifdef EBB_SANITIZE
inline constexpr size_t hostile_size = size_t{1} << 17;
#else
inline constexpr size_t hostile_size = size_t{1} << 20;
#endif

}  // namespace ebb::testing
