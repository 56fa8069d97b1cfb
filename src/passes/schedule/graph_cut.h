// GraphCut: a graph cut in two, one that computes some values early, and the step, which reads what
// it needs of them.
#pragma once

#include <functional>
#include <vector>

#include "ir/graph.h"

namespace ebb {

class GraphCut {
 public:
  // `early`: of a value, whether the step reads it and does not compute it.
  GraphCut(const Graph& g, const std::function<bool(int32_t)>& early);

  // Of values: whether the step computes one or has it as a source; whether it reads an early one.
  bool in_step(int32_t v) const { return in_step_[static_cast<size_t>(v)]; }
  bool crosses(int32_t v) const { return crosses_[static_cast<size_t>(v)]; }
  bool in_step(const Node& n) const;  // whether it computes one of its results

  const std::vector<bool>& crossing() const { return crosses_; }  // by value

 private:
  std::vector<bool> in_step_, crosses_;
};

// By value: these, and all that they are computed of.
std::vector<bool> with_operands_of(const Graph& g, std::vector<bool> values);

}  // namespace ebb
