// rms_norm: x / sqrt(mean(x^2) + eps) (offset + weight) + bias over the last dim.
#include "functions/norms.h"

namespace ebb::functions::table {
namespace {

using RmsNorm = NormAttributes<false, true>;

std::vector<Value> build(const Use& u) {
  return {norm({.x = u.in[0], .weight = u.in[1], .bias = u.in[2]}, u.as<RmsNorm>().rule())};
}

}  // namespace

Function rms_norm() { return define<RmsNorm>("rms_norm", {"x", "weight?", "bias?"}, {"y"}, build); }

}  // namespace ebb::functions::table
