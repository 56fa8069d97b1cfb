// Slices: operands that are a range of a dim of a larger tensor: columns, some heads, some tokens.
// They replace a `slice` before the op, without a copy.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/optional_text.h"
#include "ops/prim/segments.h"

namespace ebb::ops {

// Operand operands[i] is [begin[i], end[i]) of dim(i) of its input.
struct Slices {
  std::vector<int64_t> operands;  // ascending
  std::vector<int64_t> begin, end;
  OptionalNumbers dims = {};  // from the last, -1, on; []: all are it
  void fields(auto&& f) {
    f("sliced", operands);
    f("begin", begin);
    f("end", end);
    f("sliced_dims", dims);
  }
  std::optional<size_t> of(size_t operand) const;  // its index in the lists
  int64_t dim(size_t index) const { return dims.empty() ? -1 : dims.values[index]; }
  // Adds an operand: [b, e) of its input's dim (from the last, -1, on).
  void add(size_t operand, int64_t b, int64_t e, int64_t dim = -1);
};

// Throws Error where an operand is both segmented and sliced.
void check_disjoint(const Segments& p, const Slices& c, std::string_view subject);

// The operands of an op whose inputs are `in`. Throws Error, which names `subject`, where slices
// are not ascending or not within the tensors.
std::vector<Type> slice_types(const Slices& c, std::vector<Type> in, std::string_view subject);
std::vector<Value> slice_values(const Slices& c, std::vector<Value> in);

}  // namespace ebb::ops
