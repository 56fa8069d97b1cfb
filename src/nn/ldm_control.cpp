#include "nn/ldm_control.h"

#include "base/error.h"

namespace ebb::nn {
namespace {

// Every second layer is an activation, which has no tensors.
Value hint_features(const Params& p, const std::vector<int64_t>& channels, Value hint,
                    int64_t out) {
  const AtScope at = p.enter();
  int64_t layer = 0;
  Value h = ops::silu(conv(p / layer, hint, channels[0]));
  for (size_t i = 1; i < channels.size(); ++i) {
    h = ops::silu(conv(p / (layer += 2), h, channels[i - 1]));
    h = ops::silu(conv(p / (layer += 2), h, channels[i], {.stride = 2}));
  }
  return conv(p / (layer + 2), h, out, {.init = zero_init});
}

}  // namespace

std::vector<Condition> control_inputs(const LdmUnet& c, int64_t in_channels) {
  constexpr int64_t any = Condition::any;
  std::vector<Condition> out = {{.name = "x", .shape = {any, any, in_channels}}, {.name = "noise"}};
  for (Condition& condition : ldm_conditions(c, 0)) out.push_back(std::move(condition));
  out.push_back({.name = std::string(hint_image), .shape = {any, any, 3}, .guided = false});
  out.push_back({.name = std::string(control_strength),
                 .shape = {c.skips() + 1},
                 .null = 1,
                 .guided = false});
  return out;
}

ValuesByName ldm_control(const Params& p, const LdmUnet& c,
                         const std::vector<int64_t>& hint_channels, const ValuesByName& in) {
  NetworkInputs inputs{.x = in.at("x"), .noise = in.at("noise"), .conditions = in, .random = {}};
  const int64_t n = inputs.x.shape()[0];
  const Value strength = inputs.condition(control_strength), image = inputs.condition(hint_image);
  require(image && strength, "control network: needs a ", hint_image, " and a ", control_strength);
  const Value hint = hint_features(p / "input_hint_block", hint_channels, image, c.model_channels);
  const Shape &have = hint.shape(), &want = inputs.x.shape();
  require(have[1] == want[1] && have[2] == want[2], "control network: the sides of the ",
          hint_image, " must be ", int64_t{1} << (hint_channels.size() - 1),
          " times those of the noisy image  hint: ", image.type(), "  x: ", inputs.x.type());
  const LdmFeatures f = ldm_encoder(p, c, inputs, ldm_signals(p, c, inputs), hint);
  const auto residual = [&](const Params& q, Value features, int64_t i) {
    const Value r = conv(q / 0, features, features.shape()[-1], {.kernel = 1, .init = zero_init});
    return r * ops::reshape(ops::slice(strength, 1, i, i + 1), {n, 1, 1, 1});
  };
  ValuesByName out;
  for (int64_t i = 0; i < c.skips(); ++i)
    out[control_name(i)] = residual(p / "zero_convs" / i, f.skips[static_cast<size_t>(i)], i);
  out[control_name(c.skips())] = residual(p / "middle_block_out", f.middle, c.skips());
  return out;
}

Network controlled(Network unet, std::vector<ControlNetwork> controls) {
  return
      [unet = std::move(unet), controls = std::move(controls)](Graph& g, const NetworkInputs& in) {
        NetworkInputs all = in;
        int64_t adapters = 0;  // of images, whose keys and values are attended to one by one
        for (size_t k = 0; k < controls.size(); ++k) {
          if (!controls[k]) continue;
          ValuesByName inputs = in.conditions;
          inputs["x"] = in.x;
          inputs["noise"] = in.noise;
          for (const std::string_view name : {hint_image, control_strength}) {
            inputs[std::string(name)] = in.condition(str(name, '.', k));
            all.conditions.erase(str(name, '.', k));
          }
          bool of_image = false;
          for (const auto& [name, value] : controls[k](g, inputs)) {
            of_image = of_image_adapter(name);
            Value& sum = all.conditions[of_image ? str(name, '.', adapters) : name];
            sum = sum ? sum + value : value;
          }
          adapters += of_image ? 1 : 0;
        }
        return unet(g, all);
      };
}

}  // namespace ebb::nn
