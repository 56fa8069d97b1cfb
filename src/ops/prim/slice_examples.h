// Examples of ops whose operands are columns.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/prim/slices.h"

namespace ebb::ops {

// Operands as columns of tensors `width` wide, from the column given for each on.
struct AsSlices {
  const char* label;
  std::string_view of;  // label of the example with unsliced operands
  int64_t width = 0;
  std::initializer_list<std::pair<size_t, int64_t>> operands;
};

// The example `c.of` among `all` so; `A` are the op's attributes.
template <class A>
Example as_slices(const std::vector<Example>& all, const AsSlices& c) {
  Example e = *std::ranges::find(all, c.of, &Example::label);
  e.label = c.label;
  A a = e.attrs.as<A>();
  for (const auto& [operand, begin] : c.operands) {
    size_t tensor = operand;
    if constexpr (requires { a.segments; })
      while (operand_of(a.segments, tensor) < operand) ++tensor;
    int64_t& size = e.in[tensor].shape[-1];
    a.slices.add(operand, begin, begin + size);
    size = c.width;
  }
  e.attrs = a;
  return e;
}

}  // namespace ebb::ops
