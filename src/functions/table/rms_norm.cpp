// rms_norm: x / sqrt(mean(x^2) + eps) (offset + weight) + bias over the last dim.
#include "functions/norms.h"

namespace ebb::functions::table {
namespace {

struct RmsNorm {
  double eps = 1e-6, offset = 0;
  std::string rounding = "once", dtype = {};
  void fields(auto&& f) {
    f("eps", eps);
    f("offset", offset);
    f("rounding", rounding);
    f("dtype", dtype);
  }
};

std::vector<Value> build(const Use& u) {
  const auto& a = u.as<RmsNorm>();
  return {norm({.x = u.in[0], .weight = u.in[1], .bias = u.in[2]},
               {.eps = a.eps,
                .offset = a.offset,
                .rounding = parse_rounding(a.rounding),
                .dtype = a.dtype})};
}

}  // namespace

Function rms_norm() { return define<RmsNorm>("rms_norm", {"x", "weight?", "bias?"}, {"y"}, build); }

}  // namespace ebb::functions::table
