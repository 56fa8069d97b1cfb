// NaN and infinities among numbers of any dtype.
#pragma once

#include <cstdint>

#include "core/shape.h"

namespace ebb {

// Index of the first element that is NaN or infinite, or -1. Host memory of the type.
int64_t find_not_finite(const Type& type, const void* data);

}  // namespace ebb
