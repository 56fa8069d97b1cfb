// LoRA (Hu et al. 2021, arXiv:2106.09685): scale up @ down, and of filters LoCon (LyCORIS, Yeh et
// al. 2023, arXiv:2309.14859, section 3), with a filter between both in its Tucker form.
#include <cmath>

#include "adapters/kind.h"
#include "base/error.h"
#include "nn/ops.h"

namespace ebb::adapters::kinds {
namespace {

int64_t rank(const Module& m, const WeightSize& w) {
  const int64_t r = m.size("down", 0);
  if (!m.has("mid")) {
    m.expect("down", r, w.in * w.taps, w);
    m.expect("up", w.out, r, w);
    return r;
  }
  m.expect("down", r, w.in, w);
  const int64_t outer = m.size("mid", 0);
  m.expect("mid", outer, r * w.taps, w);
  m.expect("up", w.out, outer, w);
  return r;
}

Value delta(const DeltaInputs& in) {
  const WeightSize& w = in.size;
  const Value up = in.tensor("up") * in.scale, down = in.tensor("down");
  const int64_t r = up.shape().numel() / w.out;
  const Value flat = ops::reshape(up, {w.out, r});
  if (in.has("mid")) return tucker(flat, in.tensor("mid"), down, w);
  return product(flat, down, w.out, r, w.in * w.taps);
}

// down [r,I,...], drawn as the linear layer and the convolution of torch are, and up [O,r,1,...].
std::vector<Factor> factors(const FactorSizes& sizes, const Shape& weight) {
  std::vector<int64_t> down = weight.sizes(), up(down.size(), 1);
  down[0] = sizes.rank, up[0] = weight[0], up[1] = sizes.rank;
  const auto inputs = static_cast<double>(weight.numel() / weight[0]);
  return {{"down", Shape(down), "uniform", 1 / std::sqrt(inputs)}, {"up", Shape(up)}};
}

}  // namespace

const AdapterKind& lora() {
  static const AdapterKind k{.name = "LoRA",
                             .help = "up @ down",
                             .roles = {{".lora_down.weight", "down", FileNames::kohya},
                                       {".lora_up.weight", "up", FileNames::kohya},
                                       {".lora_mid.weight", "mid"},
                                       {".lora_up.bias", "up_bias"},
                                       {".lora_A.weight", "down", FileNames::peft},
                                       {".lora_B.weight", "up", FileNames::peft},
                                       {".lora_B.bias", "up_bias"},
                                       {".lora_A.default.weight", "down"},
                                       {".lora_B.default.weight", "up"},
                                       {".lora_B.default.bias", "up_bias"},
                                       {".lora_A", "down"},
                                       {".lora_B", "up"},
                                       {"_lora.down.weight", "down"},
                                       {"_lora.up.weight", "up"},
                                       {".lora.down.weight", "down"},
                                       {".lora.up.weight", "up"},
                                       {".lora_linear_layer.down.weight", "down"},
                                       {".lora_linear_layer.up.weight", "up"}},
                             .main = "down",
                             .bias_role = "up_bias",
                             .rank = rank,
                             .delta = delta,
                             .factors = factors,
                             .kohya_module = "networks.lora"};
  return k;
}

}  // namespace ebb::adapters::kinds
