// map: a formula of tensors that broadcast against each other, "x * sigmoid(x) * y".
#include "base/error.h"
#include "base/file_and_numbers.h"
#include "functions/function.h"
#include "ir/formula.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::functions::table {
namespace {

struct Map {
  std::string formula = {}, names = {};  // of the inputs, with commas between them
  std::string dtype = {};                // of the result; "": the widest of the inputs
  void fields(auto&& f) {
    f("formula", formula);
    f("names", names);
    f("dtype", dtype);
  }
};

std::vector<Value> build(const Use& u) {
  const auto& a = u.as<Map>();
  std::vector<std::string> names;
  for (const auto part : parted(a.names, ",")) names.emplace_back(part);
  require(names.size() == u.in.size(), "map: ", u.in.size(), " inputs need as many names (got '",
          a.names, "')");
  const Expr formula = parse_formula(a.formula, names);
  require(formula.results().size() == 1, "map: needs one formula (got ", formula.results().size(),
          ")");
  return ops::pointwise(u.graph, {.expr = formula, .dtypes = a.dtype}, u.in);
}

}  // namespace

Function map() { return define<Map>("map", {"inputs..."}, {"y"}, build); }

}  // namespace ebb::functions::table
