#include "nn/ldm_control.h"

#include "base/error.h"
#include "nn/clip.h"

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

// ---- networks of several tasks -------------------------------------------------------------

// Published code attends along the batch: each state to those in the same place of all samples
// (diffusers does so, too). These are branches of one image and equal, so that the values are the
// result; here they are in any batch.
Value own_value(const Params& p, Value x) {
  const int64_t channels = x.shape()[2];
  return linear(p / "out_proj", linear(p / "v_proj", x, channels), channels);
}

// [N,1,C] of the mean of the hint's features and of its task.
Value task_state(const Params& p, const ControlTasks& c, Value features, Value task) {
  const int64_t n = features.shape()[0], channels = features.shape()[3];
  const Value table = p.param("task_embedding", {c.count, channels});
  const Value mean = ops::reshape(ops::mean(features, {1, 2}), {n, 1, channels});
  Value x =
      mean + ops::reshape(ops::matmul(ops::reshape(task, {n, c.count}), table), {n, 1, channels});
  for (int64_t i = 0; i < c.layers; ++i) {
    const Params q = p / "transformer_layes" / i;  // as files spell it
    x = x + own_value(q / "attn", layer_norm(q / "ln_1", x, {}));
    const Value h = linear(q / "mlp" / "c_fc", layer_norm(q / "ln_2", x, {}), 4 * channels);
    x = x + linear(q / "mlp" / "c_proj", quick_gelu(h), channels);
  }
  return x;
}

// [N,1,1,C] that is added to the hint's features.
Value task_shift(const Params& p, const ControlTasks& c, Value features, Value task) {
  const Value x = task_state(p, c, features, task);
  const int64_t n = x.shape()[0], channels = x.shape()[2];
  return ops::reshape(linear(p / "spatial_ch_projs", x, channels, {.init = zero_init}),
                      {n, 1, 1, channels});
}

// What is added to the embedding of the noise level.
Value task_embedding(const Params& p, const LdmControl& c, Value task) {
  const int64_t n = task.shape()[0], count = c.tasks.count, width = c.unet.size_channels;
  const Value numbers = ops::timestep_embedding(ops::reshape(task, {n * count}), width, {});
  const Params q = p / "control_add_embedding";
  return silu_mlp({q / "linear_1", q / "linear_2", 4 * c.unet.model_channels},
                  ops::reshape(numbers, {n, count * width}));
}

}  // namespace

bool own_control_input(std::string_view name) {
  return name == hint_image || name == control_strength || name == control_task;
}

std::vector<Condition> control_inputs(const LdmControl& control, int64_t in_channels) {
  constexpr int64_t any = Condition::any;
  const LdmUnet& c = control.unet;
  std::vector<Condition> out = {{.name = "x", .shape = {any, any, in_channels}}, {.name = "noise"}};
  for (Condition& condition : ldm_conditions(c, 0)) out.push_back(std::move(condition));
  out.push_back({.name = std::string(hint_image), .shape = {any, any, 3}, .guided = false});
  out.push_back({.name = std::string(control_strength),
                 .shape = {c.skips() + 1},
                 .null = 1,
                 .guided = false});
  if (control.tasks.count > 0)
    out.push_back(
        {.name = std::string(control_task), .shape = {1, control.tasks.count}, .guided = false});
  return out;
}

ValuesByName ldm_control(const Params& p, const LdmControl& control, const ValuesByName& in) {
  const LdmUnet& c = control.unet;
  const std::vector<int64_t>& hint_channels = control.hint_channels;
  NetworkInputs inputs{.x = in.at("x"), .noise = in.at("noise"), .conditions = in, .random = {}};
  const int64_t n = inputs.x.shape()[0];
  const Value strength = inputs.condition(control_strength), image = inputs.condition(hint_image);
  require(image && strength, "control network: needs a ", hint_image, " and a ", control_strength);
  Value hint = hint_features(p / "input_hint_block", hint_channels, image, c.model_channels);
  const Shape have = hint.shape(), &want = inputs.x.shape();
  require(have[1] == want[1] && have[2] == want[2], "control network: the sides of the ",
          hint_image, " must be ", int64_t{1} << (hint_channels.size() - 1),
          " times those of the noisy image  hint: ", image.type(), "  x: ", inputs.x.type());
  Value added;
  if (control.tasks.count > 0) {
    const Value task = inputs.condition(control_task);
    require(static_cast<bool>(task), "control network: needs a ", control_task);
    added = task_embedding(p, control, task);
    hint = hint + task_shift(p, control.tasks, hint, task);
  }
  const LdmFeatures f = ldm_encoder(p, c, inputs, ldm_signals(p, c, inputs, added), hint);
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
          for (const std::string_view name : {hint_image, control_strength, control_task}) {
            inputs[std::string(name)] = in.condition(str(name, '.', k));
            all.conditions.erase(str(name, '.', k));
          }
          bool of_image = false;
          for (const auto& [name, value] : controls[k](g, inputs)) {
            of_image = of_image_adapter(name);
            Value& sum = all.conditions[of_image ? str(name, '.', adapters) : name];
            sum = sum ? sum + value : value;
          }
          const std::string mask = str(control_mask, '.', k);
          if (of_image && in.condition(mask))
            all.conditions[image_mask(adapters)] = in.condition(mask);
          all.conditions.erase(mask);
          adapters += of_image ? 1 : 0;
        }
        return unet(g, all);
      };
}

}  // namespace ebb::nn
