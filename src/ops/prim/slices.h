// Slices: operands that are a range of columns of a wider tensor. They replace a `slice` before the
// op, without a copy.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ops/prim/segments.h"

namespace ebb::ops {

// Operand operands[i] is [begin[i], end[i]) of the last dim of its input.
struct Slices {
  std::vector<int64_t> operands;  // ascending
  std::vector<int64_t> begin, end;
  void fields(auto&& f) {
    f("sliced", operands);
    f("begin", begin);
    f("end", end);
  }
  std::optional<size_t> of(size_t operand) const;  // its index in the lists
  // Adds an operand: [b, e) of its input.
  void add(size_t operand, int64_t b, int64_t e);
};

// Throws Error where an operand is both segmented and sliced.
void check_disjoint(const Segments& p, const Slices& c, std::string_view subject);

// The operands of an op whose inputs are `in`. Throws Error, which names `subject`, where slices
// are not ascending or not within the tensors.
std::vector<Type> slice_types(const Slices& c, std::vector<Type> in, std::string_view subject);
std::vector<Value> slice_values(const Slices& c, std::vector<Value> in);

}  // namespace ebb::ops
