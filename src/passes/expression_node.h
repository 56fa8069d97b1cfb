// ExpressionNode: a node that is an expression of its broadcast operands, or sums or maxima of one.
// It is all that passes know of such ops.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/op.h"

namespace ebb {

struct Reduction {
  std::vector<int64_t> dims;  // of the space; they stay with size 1
  bool maximum = false;       // else the sum,
  double scale = 1;           // times this
  bool operator==(const Reduction&) const = default;
};

struct ExpressionNode {
  Expr expr;                           // one input an operand, one result an output
  Shape space;                         // that the operands broadcast to
  std::optional<Reduction> reduction;  // of each result over the space; none: elementwise
  std::vector<DType> dtypes;           // of the outputs
  std::vector<int32_t> in, out;
  std::string at;

  // Leaves out the operands that the expression does not read; the space stays.
  void drop_unused_operands();
  // Of the primitive op that computes it.
  Node node() const;
};

// Whether it is a primitive whose outputs are an expression of the operands.
inline bool is_elementwise(const Node& n) { return n.op->expr && n.op->reference; }
// None if the node is more than an expression, or a reduction of one. What is reduced over dims of
// size 1 is an expression.
std::optional<ExpressionNode> expression_node_of(const Graph& g, const Node& n);
// Of an elementwise node.
Expr expression_of(const Graph& g, const Node& n);

}  // namespace ebb
