// The U-Nets of Stable Diffusion 1, 2 and XL, of XL's refiner and of what was made of them:
// inpainting, editing, distilled guidance (LCM), smaller ones (SSD-1B, Vega). One network, whose
// variants are counts (src/nn/ldm_unet.h); tensors have the names of the original (LDM).
#include <numeric>

#include "models/model.h"
#include "models/names.h"
#include "nn/ldm_unet.h"

namespace ebb::models {
namespace {

using nn::Params;

struct LdmUnetConfig {
  CommonConfig common{.image_size = 64, .in_channels = 4};
  nn::LdmUnet unet;
  std::string prediction = "eps";
  void fields(auto&& f) {
    common.fields(f);
    unet.fields(f);
    f("prediction", prediction, "what the network was trained to predict: eps or v");
  }
};

// ---- published variants --------------------------------------------------------------------

LdmUnetConfig stable_diffusion_2() {
  LdmUnetConfig c;
  c.unet.num_heads = 0;
  c.unet.num_head_channels = 64;
  c.unet.context = 1024;
  c.unet.conv_projection = false;
  return c;
}

LdmUnetConfig stable_diffusion_xl() {
  LdmUnetConfig c = stable_diffusion_2();
  c.common.image_size = 128;
  c.unet.channel_mult = {1, 2, 4};
  c.unet.input_depths = {0, 0, 2, 2, 10, 10};
  c.unet.middle_depth = 10;
  c.unet.output_depths = {10, 10, 10, 2, 2, 2, 0, 0, 0};
  c.unet.context = 2048;
  c.unet.vector = 2816;
  c.unet.sizes = 6;
  return c;
}

LdmUnetConfig refiner() {
  LdmUnetConfig c = stable_diffusion_2();
  c.common.image_size = 128;
  c.unet.model_channels = 384;
  c.unet.input_depths = {0, 0, 4, 4, 4, 4, 0, 0};
  c.unet.middle_depth = 4;
  c.unet.output_depths = {0, 0, 0, 4, 4, 4, 4, 4, 4, 0, 0, 0};
  c.unet.context = 1280;
  c.unet.vector = 2560;
  c.unet.sizes = 5;
  return c;
}

LdmUnetConfig smaller_xl(std::vector<int64_t> input_depths, std::vector<int64_t> output_depths) {
  LdmUnetConfig c = stable_diffusion_xl();
  c.unet.input_depths = std::move(input_depths);
  c.unet.middle_blocks = 1;
  c.unet.middle_depth = 0;
  c.unet.output_depths = std::move(output_depths);
  return c;
}

LdmUnetConfig beside(LdmUnetConfig c, int64_t extra_channels) {
  c.unet.extra_channels = extra_channels;
  return c;
}

std::vector<Preset> presets() {
  constexpr int64_t image = 4, mask_and_image = 5, depth_map = 1;
  const LdmUnetConfig sd1, sd2 = stable_diffusion_2(), xl = stable_diffusion_xl();
  LdmUnetConfig lcm;
  lcm.unet.guidance_channels = 256;
  return {
      {"sd15", "Stable Diffusion 1.x, 860 M parameters", sd1},
      {"sd15_inpaint", "its inpainting model", beside(sd1, mask_and_image)},
      {"ip2p", "InstructPix2Pix, which edits an image", beside(sd1, image)},
      {"lcm_sd15", "its latent consistency model, with distilled guidance", lcm},
      {"sd2", "Stable Diffusion 2.x, 866 M parameters", sd2},
      {"sd2_inpaint", "its inpainting model", beside(sd2, mask_and_image)},
      {"sd2_depth", "its model with a depth map", beside(sd2, depth_map)},
      {"sdxl", "Stable Diffusion XL, 2.57 B parameters", xl},
      {"sdxl_inpaint", "its inpainting model", beside(xl, mask_and_image)},
      {"sdxl_ip2p", "its editing model", beside(xl, image)},
      {"sdxl_refiner", "the refiner of Stable Diffusion XL, 2.26 B parameters", refiner()},
      {"ssd1b", "SSD-1B, a smaller Stable Diffusion XL",
       smaller_xl({0, 0, 2, 2, 4, 4}, {4, 4, 10, 2, 1, 1, 0, 0, 0})},
      {"segmind_vega", "Segmind-Vega, a smaller Stable Diffusion XL",
       smaller_xl({0, 0, 1, 1, 2, 2}, {2, 2, 2, 1, 1, 1, 0, 0, 0})},
  };
}

// ---- network -------------------------------------------------------------------------------

void check(const ModelConfig& config) {
  const auto& c = config.as<LdmUnetConfig>();
  nn::check(c.unet, "ldm_unet");
  require(c.common.classes == 0, "ldm_unet: has no classes (", c.common.classes, ")");
  require(c.common.dropout == 0, "ldm_unet: has no dropout (", c.common.dropout, ")");
  require(c.prediction == "eps" || c.prediction == "v", "ldm_unet: prediction must be eps or v ('",
          c.prediction, "')");
}

Value build(const Params& p, const ModelConfig& config, const nn::NetworkInputs& in) {
  const auto& c = config.as<LdmUnetConfig>();
  const nn::LdmSignals s = nn::ldm_signals(p, c.unet, in);
  const Value h = nn::ldm_decoder(p, c.unet, nn::ldm_encoder(p, c.unet, in, s), s);
  const Value x = ops::silu(nn::group_norm(p / "out" / 0, h, {.groups = c.unet.groups}));
  return nn::conv(p / "out" / 2, x, c.common.in_channels, {.init = nn::zero_init});
}

std::vector<nn::Condition> conditions(const ModelConfig& config) {
  const auto& c = config.as<LdmUnetConfig>();
  return nn::ldm_conditions(c.unet, c.common.image_size);
}

// Any: where a level cannot be halved, the decoder goes back to the size that it had.
int64_t size_multiple(const ModelConfig&) { return 1; }

std::optional<LatentSpace> latents(const ModelConfig& config) {
  const bool xl = config.as<LdmUnetConfig>().unet.vector > 0;
  return LatentSpace{.factor = 8,
                     .of = str("Stable Diffusion", xl ? " XL" : "", "'s autoencoder"),
                     .scale = xl ? 0.13025 : 0.18215};
}

// ---- recognition ---------------------------------------------------------------------------

// Transformer blocks behind the residual block of each of `count` blocks.
int64_t depth_of(const Names& n, const std::string& block) {
  return n.count(str(block, ".1.transformer_blocks."), ".norm1.weight");
}

// The first block with a transformer; "" if there is none.
std::string first_transformer(const Names& n, int64_t inputs) {
  for (int64_t k = 1; k < inputs; ++k)
    if (depth_of(n, str("input_blocks.", k)) > 0) return str("input_blocks.", k, ".1");
  return depth_of(n, "middle_block") > 0 ? "middle_block.1" : "";
}

void recognise_levels(const Names& n, nn::LdmUnet& c, int64_t outputs) {
  const auto has_block = [&](const std::string& block) {
    return n.has(block + ".0.in_layers.2.weight");
  };
  c.num_res_blocks = 0;
  while (has_block(str("input_blocks.", c.num_res_blocks + 1))) ++c.num_res_blocks;
  const int64_t levels = outputs / (c.num_res_blocks + 1);
  c.channel_mult.clear();
  c.input_depths.clear();
  c.output_depths.clear();
  for (int64_t level = 0; level < levels; ++level) {
    const int64_t first = (c.num_res_blocks + 1) * level + 1;
    c.channel_mult.push_back(n.size(str("input_blocks.", first, ".0.in_layers.2.weight"), 0) /
                             c.model_channels);
    for (int64_t i = 0; i < c.num_res_blocks; ++i)
      c.input_depths.push_back(depth_of(n, str("input_blocks.", first + i)));
  }
  for (int64_t k = 0; k < outputs; ++k)
    c.output_depths.push_back(depth_of(n, str("output_blocks.", k)));
  c.middle_depth = depth_of(n, "middle_block");
  const bool two =
      n.has("middle_block.1.in_layers.2.weight") || n.has("middle_block.2.in_layers.2.weight");
  c.middle_blocks = n.has("middle_block.0.in_layers.2.weight") ? (two ? 2 : 1) : 0;
}

// Heads, groups and sizes leave no trace in shapes: Stable Diffusion 1, whose texts have 768
// channels, has 8 heads, others have 64 channels a head; 1280 channels of a vector are the text.
void guess(nn::LdmUnet& c) {
  constexpr int64_t sd1_context = 768, head = 64, most_groups = 32, pooled = 1280;
  const bool sd1 = c.context == sd1_context || c.model_channels % head != 0;
  c.num_heads = sd1 ? 8 : 0;
  c.num_head_channels = sd1 ? 0 : head;
  c.groups = std::gcd(c.model_channels, most_groups);
  const int64_t numbers = c.vector - pooled;
  c.sizes = numbers > 0 && numbers % c.size_channels == 0 ? numbers / c.size_channels : 0;
}

std::optional<ModelConfig> recognise(const nn::FileShapes& t) {
  const Names n{t};
  const int64_t outputs = n.count("output_blocks.", ".0.in_layers.2.weight");
  if (!n.has("input_blocks.0.0.weight") || !n.has("time_embed.0.weight") ||
      !n.has("out.2.weight") || outputs == 0)
    return {};
  LdmUnetConfig c;
  c.unet.model_channels = n.size("input_blocks.0.0.weight", 0);
  const std::string transformer = first_transformer(n, outputs + 1);
  if (transformer.empty() || c.unet.model_channels == 0) return {};
  c.common.in_channels = n.size("out.2.weight", 0);
  c.unet.extra_channels = n.size("input_blocks.0.0.weight", 1) - c.common.in_channels;
  if (c.unet.extra_channels < 0) return {};
  recognise_levels(n, c.unet, outputs);
  c.unet.context = n.size(transformer + ".transformer_blocks.0.attn2.to_k.weight", 1);
  c.unet.conv_projection = n.size(transformer + ".proj_in.weight", 2) > 0;
  c.unet.vector = n.size("label_emb.0.0.weight", 1);
  c.unet.guidance_channels = n.size("time_embed.cond_proj.weight", 1);
  guess(c.unet);
  c.common.image_size = c.unet.vector > 0 ? 128 : 64;
  return c;
}

std::string guessed(const ModelConfig& config) {
  for (const Preset& preset : presets())
    if (config == preset.config) return "";
  const nn::LdmUnet& c = config.as<LdmUnetConfig>().unet;
  return str(c.num_head_channels > 0 ? str("num_head_channels ", c.num_head_channels)
                                     : str("num_heads ", c.num_heads),
             ", groups ", c.groups, c.vector > 0 ? str(", sizes ", c.sizes) : "");
}

std::string diffusion(const ModelConfig& config) {
  return str("{precond=", config.as<LdmUnetConfig>().prediction, " betas=scaled_linear}");
}

}  // namespace

const Model& ldm_unet() {
  static const Model m{.name = "ldm_unet",
                       .help = "the U-Net of Stable Diffusion 1, 2 and XL (Rombach et al. 2022)",
                       .presets = presets(),
                       .check = check,
                       .build = build,
                       .size_multiple = size_multiple,
                       .latents = latents,
                       .conditions = conditions,
                       .recognise = recognise,
                       .guessed = guessed,
                       .diffusion = diffusion};
  return m;
}

}  // namespace ebb::models
