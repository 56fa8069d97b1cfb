// The numbers of a tensor, for comparisons that show them.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace ebb::testing {

inline std::vector<float> numbers(const Tensor& t) {
  return {t.span<float>().begin(), t.span<float>().end()};
}

}  // namespace ebb::testing
