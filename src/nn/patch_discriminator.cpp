#include "nn/patch_discriminator.h"

#include "base/error.h"
#include "nn/layers.h"

namespace ebb::nn {
namespace {

constexpr Init drawn{Init::Kind::normal, 0.02};

Value leaky_relu(Value x) {
  return ops::map({x}, [](auto v) { return max(v[0], 0.2 * v[0]); });
}

}  // namespace

Value patch_discriminator(const Params& p, Value x, int64_t channels) {
  const AtScope at = p.enter();
  const Shape shape = x.shape();
  require(shape[1] >= least_discriminated_side && shape[2] >= least_discriminated_side,
          "discriminator: sides must be at least ", least_discriminated_side, " (", shape[2], "x",
          shape[1], ")");
  const auto conv4 = [](const Params& to, Value v, int64_t out, int64_t stride, bool bias) {
    return conv(to, v, out, {.kernel = 4, .stride = stride, .pad = 1, .bias = bias, .init = drawn});
  };
  x = leaky_relu(conv4(p / 0 / "conv", x, channels, 2, true));
  for (int64_t i = 1; i <= 3; ++i) {
    x = conv4(p / i / "conv", x, channels << i, i < 3 ? 2 : 1, false);
    x = leaky_relu(group_norm(p / i / "norm", x, {.groups = 32}));
  }
  return conv4(p / 4 / "conv", x, 1, 1, true);  // [N,H/8-2,W/8-2,1]
}

}  // namespace ebb::nn
