// Every op's examples as whole plans, forward and backward, fused and not, against the
// slow interpreter.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backends.h"
#include "derived.h"
#include "guarded.h"
#include "runtime/plan.h"
#include "tolerance.h"

namespace ebb::test::derived_plan_test {
namespace {

struct Problem {
  Graph graph;
  std::vector<std::string> names;  // of the sources
  std::vector<RefArray> in;
};

// The gradient graph where there is one, else the op alone.
Problem problem_of(const Case& c) {
  Problem p;
  RefInputs inputs;
  if (has_gradient(c)) {
    Loss l = loss_of(c);
    p.graph = std::move(l.backward);
    inputs = std::move(l.inputs);
    for (size_t k = 0; k < l.use->out.size(); ++k)
      p.graph.output(str("y", k), p.graph.value(l.use->out[k].id));
  } else {
    const auto use = use_of(c);
    for (size_t k = 0; k < use->out.size(); ++k) use->graph.output(str("y", k), use->out[k]);
    const auto in = inputs_of(c);
    for (size_t i = 0; i < in.size(); ++i) inputs[str("x", i)] = in[i];
    p.graph = use->graph;
  }
  for (const Source& s : p.graph.sources()) {
    p.names.push_back(s.name);
    p.in.push_back(inputs.at(s.name));
  }
  return p;
}

// With a key every value on the way moves by a rounding unit, as it does in f32.
std::vector<RefArray> expected(const Problem& p, const std::vector<RefArray>& in,
                               std::string_view key) {
  RefInputs inputs;
  for (size_t i = 0; i < in.size(); ++i) inputs[p.names[i]] = in[i];
  int count = 0;
  const auto move = [&](RefArray& a) { move_by_a_unit(a, str(key, '.', count++)); };
  const auto values = evaluate_reference(p.graph, inputs, key.empty() ? AfterNode() : move);
  std::vector<RefArray> out;
  for (const NamedValue& o : p.graph.outputs()) out.push_back(values[static_cast<size_t>(o.value)]);
  return out;
}

// Rounded operations on the way to a result: those of one result of every node.
double terms_of(const Graph& g) {
  double terms = 0;
  for (const Node& n : g.nodes()) {
    const Signature s = g.signature(n);
    if (s.out.empty()) continue;
    terms +=
        cost_of(s).flops / static_cast<double>(std::max<int64_t>(1, s.out.back().shape.numel()));
  }
  return terms;
}

Tensor tensor_from(const RefArray& a, DType dtype) {
  Tensor t(dtype, a.shape);
  const Bytes memory = stored(a, dtype);
  std::memcpy(t.raw(), memory.data(), static_cast<size_t>(t.bytes()));
  return t;
}

class Plans : public OnBackend, public ::testing::WithParamInterface<Case> {
  void SetUp() override { open(GetParam().backend, 2); }
};

TEST_P(Plans, equal_their_reference) {
  const Problem p = problem_of(GetParam());
  const auto exact = expected(p, p.in, "");
  std::vector<bool> moves;
  NamedTensors inputs;
  for (size_t i = 0; i < p.in.size(); ++i) {
    const DType dtype = p.graph.type(p.graph.sources()[i].value).dtype;
    moves.push_back(is_float(dtype));
    inputs[p.names[i]] = tensor_from(p.in[i], dtype);
  }
  const auto conditions =
      conditions_of(p.in, moves, [&](const auto& x, auto key) { return expected(p, x, key); });
  const double terms = terms_of(p.graph);
  for (const bool fuse : {false, true}) {
    Plan plan(p.graph, context_, {.fuse = fuse});
    const auto results = plan.run(inputs);
    for (size_t k = 0; k < exact.size(); ++k) {
      const std::string& name = p.graph.outputs()[k].name;
      const Tensor& t = results.at(name);
      const RefArray y = ref_array(t);
      ASSERT_EQ(y.shape, exact[k].shape);
      for (size_t e = 0; e < y.v.size(); ++e)
        ASSERT_NEAR(y.v[e], exact[k].v[e],
                    tolerance(t.dtype(), exact[k].v[e], terms, conditions[k]))
            << name << '[' << e << (fuse ? "] fused" : "] not fused");
    }
  }
}

std::vector<Case> cases_on(const std::string& backend) {
  if (only(backend).empty()) return {};
  std::vector<Case> out = all_cases();
  for (Case& c : out) c.backend = backend;
  return out;
}

INSTANTIATE_TEST_SUITE_P(derived, Plans, ::testing::ValuesIn(cases_on("cpu")), name_of_case);
INSTANTIATE_TEST_SUITE_P(cuda, Plans, ::testing::ValuesIn(cases_on("cuda")), name_of_case);

}  // namespace
}  // namespace ebb::test::derived_plan_test
