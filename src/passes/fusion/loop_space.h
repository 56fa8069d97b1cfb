// LoopSpace: the iteration space of a loop that is being fused, and what nodes are in it.
#pragma once

#include <optional>

#include "ir/loop_form.h"
#include "ops/loop/op.h"
#include "passes/expression_node.h"

namespace ebb {

// What a node computes in a loop.
enum class LoopRole : uint8_t {
  none,      // it is not part of it
  elements,  // a value for each element
  scalars,   // a value for each row, or each image and channel
  reduces,   // a reduction of the loop; a map's are its results
  columns,   // a column reduction: partial sums in the loop, their sum behind it
};

using LoopForms = std::vector<std::optional<LoopForm>>;  // by node

struct LoopSpace {
  ops::LoopKind kind = ops::LoopKind::rows;
  Shape shape;  // rows [...,T,R...], or pixels [N,S...,C]
  // dims: of a row, or the pixels. All members of a map are such reductions, or none is.
  Reduction reduction;
  int64_t groups = 1;  // of channels

  // The space of a loop that may grow from node `i`; none for other nodes. `forms`: of all nodes.
  static std::optional<LoopSpace> from(const Graph& g, const LoopForms& forms, size_t i,
                                       ops::LoopKind kind);

  LoopRole role_of(const LoopForm& f) const;
  int64_t row_dims() const { return static_cast<int64_t>(reduction.dims.size()); }
  Shape scalars() const;  // the shape of values for each row, or each image and channel
  bool streams(const Shape& operand) const;  // whether a loop reads it element by element
  // Rows for each thread block of partial column reductions: few enough that a GPU's blocks are
  // resident at once, enough that the partial sums are read and written faster than the rows would
  // be read again; 0: there is no such number.
  int64_t partial_rows() const;

 private:
  bool reduces(const LoopForm& f) const;
  int64_t row_length() const;
};

}  // namespace ebb
