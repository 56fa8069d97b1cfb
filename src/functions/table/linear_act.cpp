// linear_act: a linear layer and an activation.
#include "functions/gated.h"
#include "ir/activations.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::functions::table {
namespace {

struct LinearAct {
  std::string act = "gelu_tanh";
  void fields(auto&& f) { f("act", act); }
};

std::vector<Value> build(const Use& u) {
  const auto& a = u.as<LinearAct>();
  const Value z = product(u.in[0], u.in[1], u.in[2]);
  return {ops::map(
      {z}, [&](auto v) { return activation(a.act, v[0]); }, z.dtype())};
}

}  // namespace

Function linear_act() {
  return define<LinearAct>("linear_act", {"x", "weight", "bias?"}, {"y"}, build);
}

}  // namespace ebb::functions::table
