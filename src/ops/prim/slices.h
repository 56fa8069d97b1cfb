// Slices: operands of which an op reads some neighbouring columns of a wider tensor. What `slice`
// before it would copy stays where it is.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ops/prim/segments.h"

namespace ebb::ops {

// Operand columns[i] is [begin[i], end[i]) of the last dim of the tensor that is given for it.
struct Slices {
  std::vector<int64_t> operands;  // operands, rising
  std::vector<int64_t> begin, end;
  void fields(auto&& f) {
    f("sliced", operands);
    f("begin", begin);
    f("end", end);
  }
  std::optional<size_t> of(size_t operand) const;  // its place in the lists
  // Operand `k` (not yet one of these) is [b, e) of what is given.
  void add(size_t operand, int64_t b, int64_t e);
};

// Throws Error where an operand comes in parts and is columns.
void check_disjoint(const Segments& p, const Slices& c, std::string_view subject);

// The operands that an op reads where it is given `in`. Throws Error, which names `subject`, where
// columns do not rise or do not lie in the tensors.
std::vector<Type> slice_types(const Slices& c, std::vector<Type> in, std::string_view subject);
std::vector<Value> slice_values(const Slices& c, std::vector<Value> in);

}  // namespace ebb::ops
