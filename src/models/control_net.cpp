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
  void fields(auto&& f) {
    f("in_channels", in_channels, "channels of the noisy image");
    unet.fields(f);
    f("hint_channels", hint_channels, "of the hint's features, whose sides halve one by one");
    f("pooled", pooled,
      "each residual is its mean over the image: of the network for shuffled images, as files do "
      "not "
      "tell");
  }
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
  return {{"control_sd15", "of Stable Diffusion 1.x, 361 M parameters", sd1},
          {"control_sd2", "of Stable Diffusion 2.x, 364 M parameters", sd2},
          {"control_sdxl", "of Stable Diffusion XL, 1.25 B parameters", xl}};
}

void check(const ModelConfig& config) {
  const auto& c = config.as<ControlNetConfig>();
  nn::check(c.unet, "control_net", false);
  require(c.in_channels > 0, "control_net: needs channels (", c.in_channels, ")");
  require(!c.hint_channels.empty() && c.hint_channels.size() < 8,
          "control_net: hint_channels must be 1 to 7 numbers (", c.hint_channels.size(), ")");
  for (const int64_t n : c.hint_channels)
    require(n > 0, "control_net: needs hint_channels (", n, ")");
}

std::vector<nn::Condition> inputs(const ModelConfig& config) {
  const auto& c = config.as<ControlNetConfig>();
  return nn::control_inputs(c.unet, c.in_channels);
}

nn::ValuesByName residuals(const nn::Params& p, const ModelConfig& config,
                           const nn::ValuesByName& in) {
  const auto& c = config.as<ControlNetConfig>();
  nn::ValuesByName out = nn::ldm_control(p, c.unet, c.hint_channels, in);
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
    return nn::FilePlace{.name = names.to_diffusers(weight)};
  };
}

// Those that several tasks share (union) have other inputs, which are not known here.
std::optional<ModelConfig> recognise(const nn::FileShapes& t) {
  const nn::FileShapes original = nn::with_original_names(t);
  const Names n{original};
  ControlNetConfig c;
  if (!n.has("zero_convs.0.0.weight") || !n.has("input_hint_block.0.weight") ||
      n.has("control_add_embedding.linear_1.weight") || !recognise_ldm(n, c.unet))
    return {};
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
  for (const Preset& preset : presets())
    if (config == preset.config) return "";
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
