// Runs a small graph in the slow interpreter.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/error.h"
#include "reference.h"

namespace ebb::test {

struct Input {
  Shape shape;
  std::vector<double> v;
  DType dtype = DType::f32;
};

// The values of what `build` makes of the inputs.
inline std::vector<RefArray> run_all(
    const std::vector<Input>& in,
    const std::function<std::vector<Value>(std::span<const Value>)>& build) {
  Graph g;
  RefInputs inputs;
  std::vector<Value> x;
  for (const Input& i : in) {
    const std::string name = str("x", x.size());
    inputs[name] = ref_array(i.shape, i.v);
    x.push_back(g.input(name, {i.dtype, i.shape}));
  }
  const std::vector<Value> y = build(x);
  verify(g, "building");
  const auto values = evaluate_reference(g, inputs);
  std::vector<RefArray> out;
  for (const Value& v : y) out.push_back(values[static_cast<size_t>(v.id)]);
  return out;
}

inline RefArray run_one(const std::vector<Input>& in,
                        const std::function<Value(std::span<const Value>)>& build) {
  return run_all(in, [&](auto x) { return std::vector<Value>{build(x)}; })[0];
}

}  // namespace ebb::test
