// median: of measured times.
#pragma once

#include <algorithm>
#include <vector>

namespace ebb {

// The upper one of the two in the middle where the number is even; 0 of none.
inline double median(std::vector<double> v) {
  if (v.empty()) return 0;
  const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::ranges::nth_element(v, middle);
  return *middle;
}

}  // namespace ebb
