// Integer division that rounds up.
#pragma once

#include <cstdint>

namespace ebb {

// The least whole number of at least n / of; n >= 0, of > 0.
constexpr int64_t ceil_div(int64_t n, int64_t of) { return (n + of - 1) / of; }
// The least multiple of `of` that is at least n.
constexpr int64_t rounded_up(int64_t n, int64_t of) { return ceil_div(n, of) * of; }

}  // namespace ebb
