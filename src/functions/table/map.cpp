// map: a formula of tensors that broadcast against each other, "x * sigmoid(x) * y".
#include "base/error.h"
#include "base/text.h"
#include "functions/function.h"
#include "ir/formula.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::functions::table {
namespace {

struct Map {
  std::string formula = {}, names = {};  // of the inputs, with commas between them
  ResultDType dtype = {};                // unspecified: the widest of the inputs
  void fields(auto&& f) {
    f("formula", formula);
    f("names", names);
    f("dtype", dtype);
  }
};

Expr formula_of(const Map& a) {
  std::vector<std::string> names;
  for (const auto part : parted(a.names, ",")) names.emplace_back(part);
  Expr formula = parse_formula(a.formula, names);
  require(formula.results().size() == 1, "map: needs one formula (got ", formula.results().size(),
          ")");
  return formula;
}

std::vector<Value> build(const Use& u) {
  const auto& a = u.as<Map>();
  const size_t names = parted(a.names, ",").size();
  require(names == u.in.size(), "map: ", u.in.size(), " inputs need as many names (got '", a.names,
          "')");
  return ops::pointwise(u.graph, {.expr = formula_of(a), .dtypes = a.dtype}, u.in);
}

// Summands.
int64_t same_gradient(std::span<const AttributeValue> values) {
  Map a;
  set_fields("map", fields_of(a), values);
  const Expr formula = formula_of(a);
  std::vector<Scalar> x;
  for (int64_t i = 0; i < formula.inputs(); ++i) x.push_back(Scalar::input(i));
  const Scalar one[] = {Scalar(1.0)};
  const std::vector<Scalar> dx = formula.gradient(x, one);
  int64_t bits = 0;
  for (size_t i = 0; i < dx.size() && i < 63; ++i)
    if (dx[i].is_constant(1)) bits |= int64_t{1} << i;
  return bits;
}

}  // namespace

Function map() {
  Function f = define<Map>("map", {"inputs..."}, {"y"}, build);
  f.same_gradient = same_gradient;
  return f;
}

}  // namespace ebb::functions::table
