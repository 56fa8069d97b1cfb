// softmax: exp(x - max) / sum(exp(x - max)) over the last dim, the sum in f32.
#include "base/error.h"
#include "functions/function.h"
#include "ops/softmax/op.h"

namespace ebb::functions::table {
namespace {

std::vector<Value> build(const Use& u) {
  require(u.in[0].shape().rank() >= 1 && is_float(u.in[0].dtype()),
          "softmax: x must be [...,C] of floats (got ", u.in[0].type(), ")");
  return {ops::softmax(u.in[0])};
}

}  // namespace

Function softmax() { return define<NoAttrs>("softmax", {"x"}, {"y"}, build); }

}  // namespace ebb::functions::table
