// layer_norm: (x - mean) / sqrt(var + eps) weight + bias over the last dim.
#include "functions/norms.h"

namespace ebb::functions::table {
namespace {

struct LayerNorm {
  double eps = 1e-5;
  ResultDType dtype = {};
  void fields(auto&& f) {
    f("eps", eps);
    f("dtype", dtype);
  }
};

std::vector<Value> build(const Use& u) {
  const auto& a = u.as<LayerNorm>();
  return {norm({.x = u.in[0], .weight = u.in[1], .bias = u.in[2]},
               {.kind = NormKind::layer, .eps = a.eps, .dtype = a.dtype})};
}

}  // namespace

Function layer_norm() {
  return define<LayerNorm>("layer_norm", {"x", "weight?", "bias?"}, {"y"}, build);
}

}  // namespace ebb::functions::table
