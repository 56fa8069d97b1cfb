// Shared by tests of passes: short types, node counts, devices that support everything or nothing,
// and graphs for several passes.
#pragma once

#include <algorithm>
#include <functional>

#include "ops/loop/op.h"
#include "ops/prim/epilogue_form.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "passes/lower.h"

namespace ebb::test {

inline Type f32(Shape s) { return {DType::f32, std::move(s)}; }

inline int64_t count(const Graph& g, const OpDef& op) {
  return std::count_if(g.nodes().begin(), g.nodes().end(),
                       [&](const Node& n) { return n.op == &op; });
}
inline int64_t count_loops(const Graph& g, ops::LoopKind kind) {
  return std::count_if(g.nodes().begin(), g.nodes().end(),
                       [&](const Node& n) { return is_loop(n, kind); });
}

// A device with kernels for everything, and one without.
inline bool all_supported(const Signature&) { return true; }
inline bool none_supported(const Signature&) { return false; }
// The same for a matmul with and without an epilogue.
inline bool all_same_cost_class(const Signature&, const Signature&) { return true; }
inline bool no_same_cost_class(const Signature&, const Signature&) { return false; }
// Kernels of all epilogues that have a form.
inline bool serves_forms(const Signature&, const Signature& fused) {
  return ops::epilogue_form(fused).has_value();
}
// Uses of an op whose epilogue has this form.
inline int64_t count_forms(const Graph& g, const OpDef& op, ops::EpilogueForm::Kind kind) {
  return std::count_if(g.nodes().begin(), g.nodes().end(), [&](const Node& n) {
    if (n.op != &op) return false;
    const auto form = ops::epilogue_form(g.signature(n));
    return form && form->kind == kind;
  });
}

// Primitives, and pointwise ops as such.
inline Graph in_primitives(const Graph& g) {
  return lower(g, [](const Signature& s) { return s.op->reference != nullptr; });
}

inline Value scaled(Value x, Value by) {
  return ops::map({x, by}, [](auto v) { return v[0] * v[1]; });
}

// The output "loss": the sum of v over all its elements.
inline void sum_as_loss(Graph& g, Value v) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < v.shape().rank(); ++d) dims.push_back(d);
  g.output("loss", ops::reshape(ops::sum(v, dims), {}));
}

// A residual sum in the module "first", and in "second" a norm of it; both are outputs.
inline void residual_and_norm(Graph& g, const Shape& shape,
                              const std::function<Value(Value)>& norm) {
  const Value x = g.input("x", f32(shape)), h = g.input("h", f32(shape));
  Value sum;
  {
    const AtScope scope(g, "first");
    sum = ops::map({x, h}, [](auto v) { return v[0] + 0.5 * v[1]; });
  }
  const AtScope scope(g, "second");
  g.output("sum", sum);
  g.output("y", norm(sum));
}

}  // namespace ebb::test
