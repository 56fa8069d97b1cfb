// ada_norm: a norm and its modulation, norm(x) (1 + scale) + shift, as blocks of diffusion
// transformers have them (Peebles and Xie 2023).
#include "functions/norms.h"

namespace ebb::functions::table {
namespace {

struct AdaNorm {
  std::string kind = "layer";
  double eps = 1e-6;
  std::string rounding = "once", dtype = {};
  void fields(auto&& f) {
    f("kind", kind);
    f("eps", eps);
    f("rounding", rounding);
    f("dtype", dtype);
  }
};

std::vector<Value> build(const Use& u) {
  const auto& a = u.as<AdaNorm>();
  return {
      norm({.x = u.in[0], .weight = u.in[3], .bias = u.in[4], .scale = u.in[1], .shift = u.in[2]},
           {.kind = parse_norm_kind(a.kind),
            .eps = a.eps,
            .rounding = parse_rounding(a.rounding),
            .dtype = a.dtype})};
}

}  // namespace

Function ada_norm() {
  return define<AdaNorm>("ada_norm", {"x", "scale?", "shift?", "weight?", "bias?"}, {"y"}, build);
}

}  // namespace ebb::functions::table
