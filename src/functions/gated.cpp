#include "functions/gated.h"

#include "base/error.h"
#include "ir/activations.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/slice/op.h"

namespace ebb::functions {

Value gated(Value z, const GateRule& rule) {
  require(rule.gate == "first" || rule.gate == "second",
          "gated: gate is 'first' or 'second' (got '", rule.gate, "')");
  require(z.shape().rank() >= 1 && z.shape()[-1] % 2 == 0,
          "gated: needs an even number of columns (got ", z.type(), ")");
  const int64_t width = z.shape()[-1] / 2;
  const Value first = ops::slice(z, -1, 0, width), second = ops::slice(z, -1, width, 2 * width);
  const bool swap = rule.gate == "first";
  return ops::map(
      {swap ? second : first, swap ? first : second},
      [&](auto v) { return v[0] * activation(rule.act, v[1]); }, std::string(name_of(z.dtype())));
}

}  // namespace ebb::functions
