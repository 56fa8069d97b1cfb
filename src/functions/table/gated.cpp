// gated: a (act b) of the halves of x's columns, or of two tensors.
#include "functions/gated.h"

#include "base/error.h"
#include "ir/activations.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::functions::table {
namespace {

struct Gated {
  std::string act = "silu", gate = "second";
  void fields(auto&& f) {
    f("act", act);
    f("gate", gate);
  }
};

std::vector<Value> build(const Use& u) {
  const auto& a = u.as<Gated>();
  const Value x = u.in[0], other = u.in[1];
  if (!other) return {functions::gated(x, {a.act, a.gate})};
  require(x.shape() == other.shape(), "gated: x and other must be of one shape (got ", x.shape(),
          ", ", other.shape(), ")");
  const bool first = a.gate == "first";
  require(first || a.gate == "second", "gated: gate is 'first' or 'second' (got '", a.gate, "')");
  return {ops::map(
      {first ? other : x, first ? x : other},
      [&](auto v) { return v[0] * activation(a.act, v[1]); }, std::string(name_of(x.dtype())))};
}

}  // namespace

Function gated() { return define<Gated>("gated", {"x", "other?"}, {"y"}, build); }

}  // namespace ebb::functions::table
