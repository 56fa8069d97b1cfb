// ada_norm: a norm and its modulation, norm(x) (1 + scale) + shift, as blocks of diffusion
// transformers have them (Peebles and Xie 2023).
#include "functions/norms.h"

namespace ebb::functions::table {
namespace {

using AdaNorm = NormAttributes<true, false>;

std::vector<Value> build(const Use& u) {
  return {
      norm({.x = u.in[0], .weight = u.in[3], .bias = u.in[4], .scale = u.in[1], .shift = u.in[2]},
           u.as<AdaNorm>().rule())};
}

}  // namespace

Function ada_norm() {
  return define<AdaNorm>("ada_norm", {"x", "scale?", "shift?", "weight?", "bias?"}, {"y"}, build);
}

}  // namespace ebb::functions::table
