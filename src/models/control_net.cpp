// ControlNet of Stable Diffusion 1, 2 and XL (Zhang et al. 2023): residuals for the U-Net
// (src/nn/ldm_control.h); tensors have the names of the original.
#include "models/ldm_recognise.h"
#include "models/model.h"
#include "nn/ldm_control.h"

namespace ebb::models {
namespace {

struct ControlNetConfig {
  int64_t in_channels = 4;
  nn::LdmUnet unet{.output_depths = {}};
  std::vector<int64_t> hint_channels = {16, 32, 96, 256};
  bool pooled = false;
  int64_t tasks = 0;
  int64_t task_layers = 1;
  int64_t rank = 0;
  void fields(auto&& f) {
    f("in_channels", in_channels, "channels of the noisy image");
    unet.fields(f);
    f("hint_channels", hint_channels, "of the hint's features, whose sides halve one by one");
    f("pooled", pooled,
      "each residual is its mean over the image: of the network for shuffled images, as files do "
      "not "
      "tell");
    f("tasks", tasks, "kinds of images that it was trained with (union), 0: one");
    f("task_layers", task_layers, "transformer blocks of the task");
    f("rank", rank, "of a control LoRA, whose file has changes to the U-Net's weights; 0: whole");
  }
  nn::LdmControl network() const { return {unet, hint_channels, {tasks, task_layers}}; }
};

std::vector<Preset> presets() {
  ControlNetConfig sd1, sd2, xl;
  sd2.unet.num_heads = 0;
  sd2.unet.num_head_channels = 64;
  sd2.unet.context = 1024;
  sd2.unet.conv_projection = false;
  xl = sd2;
  xl.unet.channel_mult = {1, 2, 4};
  xl.unet.input_depths = {0, 0, 2, 2, 10, 10};
  xl.unet.middle_depth = 10;
  xl.unet.context = 2048;
  xl.unet.vector = 2816;
  xl.unet.sizes = 6;
  ControlNetConfig union_xl = xl, promax = xl;
  union_xl.tasks = 6;
  promax.tasks = 8;
  return {{"control_sd15", "of Stable Diffusion 1.x, 361 M parameters", sd1},
          {"control_sd2", "of Stable Diffusion 2.x, 364 M parameters", sd2},
          {"control_sdxl", "of Stable Diffusion XL, 1.25 B parameters", xl},
          {"control_sdxl_union", "of Stable Diffusion XL, of six tasks", union_xl},
          {"control_sdxl_promax", "of Stable Diffusion XL, of eight tasks", promax}};
}

void check(const ModelConfig& config) {
  const auto& c = config.as<ControlNetConfig>();
  nn::check(c.unet, "control_net", false);
  require(c.in_channels > 0, "control_net: needs channels (", c.in_channels, ")");
  require(!c.hint_channels.empty() && c.hint_channels.size() < 8,
          "control_net: hint_channels must be 1 to 7 numbers (", c.hint_channels.size(), ")");
  for (const int64_t n : c.hint_channels)
    require(n > 0, "control_net: needs hint_channels (", n, ")");
  require(c.tasks == 0 || (c.task_layers > 0 && c.task_layers <= 64 && c.unet.size_channels > 0),
          "control_net: tasks (", c.tasks, ") need transformer blocks (", c.task_layers,
          ") and embedding channels (", c.unet.size_channels, ")");
}

std::vector<nn::Condition> inputs(const ModelConfig& config) {
  const auto& c = config.as<ControlNetConfig>();
  return nn::control_inputs(c.network(), c.in_channels);
}

nn::ValuesByName residuals(const nn::Params& p, const ModelConfig& config,
                           const nn::ValuesByName& in) {
  const auto& c = config.as<ControlNetConfig>();
  nn::ValuesByName out = nn::ldm_control(p, c.network(), in);
  if (c.pooled)
    for (auto& [name, v] : out) {
      const Shape s = v.shape();
      v = ops::broadcast_to(ops::reshape(ops::mean(v, {1, 2}), {s[0], 1, 1, s[3]}), s);
    }
  return out;
}

// ---- files ---------------------------------------------------------------------------------

nn::FilePlaces places(const ModelConfig& config, const nn::FileShapes& t) {
  if (!nn::has_diffusers_names(t)) return {};
  const auto& c = config.as<ControlNetConfig>();
  const auto convolutions = static_cast<int64_t>(2 * c.hint_channels.size());
  return [names = nn::LdmNames(c.unet, convolutions)](const std::string& weight) {
    // of attention there are the values alone, which files have behind queries and keys
    constexpr std::string_view values = ".attn.v_proj.";
    if (const size_t at = weight.find(values); at != std::string::npos)
      return nn::FilePlace{
          .name = str(weight.substr(0, at), ".attn.in_proj_", weight.substr(at + values.size())),
          .part = 2,
          .parts = 3};
    return nn::FilePlace{.name = names.to_diffusers(weight)};
  };
}

// A control LoRA's X.up [O,R] and X.down [R,...] change the U-Net's X.weight [O,...].
nn::FileShapes changed_weights(const nn::FileShapes& t) {
  constexpr std::string_view up = ".up";
  nn::FileShapes out = t;
  for (const auto& [name, shape] : t) {
    if (!name.ends_with(up) || shape.rank() < 2) continue;
    const std::string stem = name.substr(0, name.size() - up.size());
    const auto down = t.find(stem + ".down");
    if (down == t.end() || down->second.rank() < 2) continue;
    Shape whole = down->second;
    whole[0] = shape[0];
    out[stem + ".weight"] = whole;
  }
  return out;
}

// Those of several tasks are in files of diffusers only.
std::optional<ModelConfig> recognise(const nn::FileShapes& t) {
  const bool lora = t.contains("lora_controlnet");
  const nn::FileShapes original = lora ? changed_weights(t) : nn::with_original_names(t);
  const Names n{original};
  ControlNetConfig c;
  if (!n.has("zero_convs.0.0.weight") || !n.has("input_hint_block.0.weight") ||
      !recognise_ldm(n, c.unet))
    return {};
  c.tasks = n.size("task_embedding", 0);
  if (c.tasks > 0) c.task_layers = n.count("transformer_layes.", ".ln_1.weight");
  if (lora) c.rank = std::max<int64_t>(n.size("input_blocks.0.0.up", 1), 1);
  c.unet.output_depths.clear();
  c.in_channels = n.size("input_blocks.0.0.weight", 1);
  c.hint_channels = {n.size("input_hint_block.0.weight", 0)};
  // behind the first layer there are pairs, and then one that has no pair
  const auto width = [&](int64_t layer) {
    return n.size(str("input_hint_block.", layer, ".weight"), 0);
  };
  for (int64_t layer = 4; width(layer + 2) > 0; layer += 4) c.hint_channels.push_back(width(layer));
  return c;
}

std::string guessed(const ModelConfig& config) {
  auto whole = config.as<ControlNetConfig>();
  whole.rank = 0;
  for (const Preset& preset : presets())
    if (ModelConfig(whole) == preset.config) return "";
  return guessed_ldm(config.as<ControlNetConfig>().unet);
}

}  // namespace

const Model& control_net() {
  static const Model m{
      .name = "control_net",
      .help = "ControlNet for the U-Nets of Stable Diffusion (Zhang et al. 2023)",
      .kind = ModelKind::control_network,
      .presets = presets(),
      .check = check,
      .entries = {{"residuals", "what is added to the features of the U-Net", inputs, residuals}},
      .size_multiple = +[](const ModelConfig&) { return int64_t{1}; },
      .recognise = recognise,
      .places = places,
      .guessed = guessed};
  return m;
}

}  // namespace ebb::models
