// The U-Nets of Stable Diffusion 1, 2 and XL, of XL's refiner and of what was made of them:
// inpainting, editing, distilled guidance (LCM), smaller ones (SSD-1B, Vega). One network, whose
// variants are counts (src/nn/ldm_unet.h); tensors have the names of the original (LDM).
#include <algorithm>
#include <charconv>

#include "models/ldm_recognise.h"
#include "models/model.h"

namespace ebb::models {
namespace {

using nn::Params;

struct LdmUnetConfig {
  CommonConfig common{.image_size = 64, .in_channels = 4};
  nn::LdmUnet unet;
  std::string prediction = "eps";
  bool zero_snr = false;
  double latent_scale = 0, latent_shift = 0;
  std::vector<double> latent_mean, latent_deviation;
  void fields(auto&& f) {
    common.fields(f);
    unet.fields(f);
    f("prediction", prediction, "what the network was trained to predict: eps, v or edm");
    f("zero_snr", zero_snr, "it was trained with no signal at the last timestep");
    f("latent_scale", latent_scale, "factor of the autoencoder's latents; 0: the family's");
    f("latent_shift", latent_shift, "what is taken off them before");
    f("latent_mean", latent_mean, "likewise, of each channel; none: 0");
    f("latent_deviation", latent_deviation, "what each channel is divided by; none: 1");
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

// That of the model that comes with ebb (docs/model-in-the-box.md); its file says its side.
LdmUnetConfig in_the_box() {
  LdmUnetConfig c;
  c.unet.model_channels = 128;
  c.unet.channel_mult = {1, 2};
  c.unet.num_res_blocks = 1;
  c.unet.input_depths = {1, 0};
  c.unet.output_depths = {0, 0, 1, 1};
  c.unet.num_heads = 0;
  c.unet.num_head_channels = 64;
  c.unet.context = 128;
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
      {"box", "the model that comes with ebb, 12.6 M parameters", in_the_box()},
  };
}

// ---- network -------------------------------------------------------------------------------

void check(const ModelConfig& config) {
  const auto& c = config.as<LdmUnetConfig>();
  nn::check(c.unet, "ldm_unet");
  require(c.common.classes == 0, "ldm_unet: has no classes (", c.common.classes, ")");
  require(c.common.dropout == 0, "ldm_unet: has no dropout (", c.common.dropout, ")");
  require(c.prediction == "eps" || c.prediction == "v" || c.prediction == "edm",
          "ldm_unet: prediction must be eps, v or edm ('", c.prediction, "')");
  require(c.latent_scale >= 0, "ldm_unet: latent_scale must not be negative (", c.latent_scale,
          ")");
  for (const auto* of_channels : {&c.latent_mean, &c.latent_deviation})
    require(
        of_channels->empty() || static_cast<int64_t>(of_channels->size()) == c.common.in_channels,
        "ldm_unet: latent_mean and latent_deviation must be of ", c.common.in_channels,
        " channels (", of_channels->size(), ")");
  require(std::ranges::all_of(c.latent_deviation, [](double v) { return v > 0; }),
          "ldm_unet: latent_deviation must be above 0");
}

Value build(const Params& p, const ModelConfig& config, const nn::NetworkInputs& in) {
  const auto& c = config.as<LdmUnetConfig>();
  const nn::LdmSignals s = nn::ldm_signals(p, c.unet, in);
  const nn::LdmFeatures f = nn::with_control(nn::ldm_encoder(p, c.unet, in, s), in);
  const Value h = nn::ldm_decoder(p, c.unet, f, s);
  const Value x = ops::silu(nn::group_norm(p / "out" / 0, h, {.groups = c.unet.groups}));
  return nn::conv(p / "out" / 2, x, c.common.in_channels, {.init = nn::zero_init});
}

std::vector<nn::Condition> conditions(const ModelConfig& config) {
  const auto& c = config.as<LdmUnetConfig>();
  std::vector<nn::Condition> out = nn::ldm_conditions(c.unet, c.common.image_size);
  for (nn::Condition& residual : nn::control_conditions(c.unet)) out.push_back(std::move(residual));
  for (nn::Condition& features : nn::adapter_conditions(c.unet)) out.push_back(std::move(features));
  return out;
}

// Any: where a level cannot be halved, the decoder goes back to the size that it had.
int64_t size_multiple(const ModelConfig&) { return 1; }

// The family's, if the file or its folder says no other.
std::optional<LatentSpace> latents(const ModelConfig& config) {
  const auto& c = config.as<LdmUnetConfig>();
  LatentSpace out = ldm_family(c.unet).latents;
  if (c.latent_scale > 0) out.scale = c.latent_scale;
  if (c.latent_shift != 0) out.shift = c.latent_shift;
  return out;
}

// ---- recognition ---------------------------------------------------------------------------

nn::FilePlaces places(const ModelConfig& config, const nn::FileShapes& t) {
  if (!nn::has_diffusers_names(t)) return {};
  return [names = nn::LdmNames(config.as<LdmUnetConfig>().unet)](const std::string& weight) {
    return nn::FilePlace{.name = names.to_diffusers(weight)};
  };
}

std::optional<ModelConfig> recognise(const nn::FileShapes& t) {
  const nn::FileShapes original = nn::with_original_names(t);
  const Names n{original};
  const int64_t outputs = n.count("output_blocks.", ".0.in_layers.2.weight");
  LdmUnetConfig c;
  if (outputs == 0 || !n.has("out.2.weight") || !recognise_ldm(n, c.unet)) return {};
  c.unet.output_depths.clear();
  for (int64_t k = 0; k < outputs; ++k)
    c.unet.output_depths.push_back(ldm_depth(n, str("output_blocks.", k)));
  c.common.in_channels = n.size("out.2.weight", 0);
  c.unet.extra_channels = n.size("input_blocks.0.0.weight", 1) - c.common.in_channels;
  if (c.unet.extra_channels < 0) return {};
  const Family& family = ldm_family(c.unet);
  c.common.image_size = family.image_size;
  c.prediction = family.prediction;
  return c;
}

// ---- prediction ----------------------------------------------------------------------------

// Playground 2.5 predicts as EDM does, and its file says what its latents are normalised by, to a
// deviation of 0.5. Markers without numbers mean those that were published.
void take_playground(LdmUnetConfig& c, const FileFacts& file) {
  const auto numbers = [&](const char* name, std::vector<double> published) {
    const Tensor t = file.load(name);
    if (!t.defined() || t.numel() <= 1) return published;
    const Tensor wide = t.to(DType::f32);
    return std::vector<double>(wide.span<float>().begin(), wide.span<float>().end());
  };
  c.prediction = "edm";
  c.latent_scale = 0.5;
  c.latent_mean = numbers("edm_mean", {-1.6574, 1.886, -1.383, 2.5155});
  c.latent_deviation = numbers("edm_std", {8.4927, 5.9022, 6.5498, 5.2299});
}

// The side of the pictures that it was trained on, where metadata says it as "128x128". Other texts
// say nothing, nor do sides that are no pictures of the family's.
void take_resolution(LdmUnetConfig& c, const FileFacts& file) {
  const auto said = file.metadata.find("modelspec.resolution");
  if (said == file.metadata.end()) return;
  const Family& family = ldm_family(c.unet);
  const int64_t factor = family.latents.factor;
  int64_t width = 0, height = 0;
  const char* const end = said->second.data() + said->second.size();
  const auto [cross, error] = std::from_chars(said->second.data(), end, width);
  if (error != std::errc() || cross == end || *cross != 'x') return;
  const auto [last, other] = std::from_chars(cross + 1, end, height);
  if (other != std::errc() || last != end || width != height) return;
  if (width % factor == 0 && plausible_side(family, width / factor))
    c.common.image_size = width / factor;
}

// Files have markers, tensors that are there or not, or metadata; the rest is the family's.
void examine(ModelConfig& config, const FileFacts& file) {
  auto& c = config.as<LdmUnetConfig>();
  take_resolution(c, file);
  const auto marked = [&](const char* name) { return file.shapes.contains(name); };
  require(!marked("edm_vpred.sigma_max"),
          "ldm_unet: the file is of a network that predicts v of EDM (CosXL), which is not "
          "implemented");
  if (marked("edm_mean") || marked("edm_std")) take_playground(c, file);
  if (marked("v_pred")) c.prediction = "v";
  c.zero_snr = marked("ztsnr");
  const auto said = file.metadata.find("modelspec.prediction_type");
  if (said != file.metadata.end() && (said->second == "v" || said->second == "v_prediction"))
    c.prediction = "v";
  ldm_family(c.unet).examine(config, file);
}

std::string guessed(const ModelConfig& config) {
  for (const Preset& preset : presets()) {
    auto found = config.as<LdmUnetConfig>();
    const auto& known = preset.config.as<LdmUnetConfig>();
    found.common.image_size = known.common.image_size;  // what examine() says is no guess
    found.prediction = known.prediction;
    found.zero_snr = known.zero_snr;
    found.latent_scale = known.latent_scale, found.latent_shift = known.latent_shift;
    found.latent_mean = known.latent_mean, found.latent_deviation = known.latent_deviation;
    if (ModelConfig(found) == preset.config) return "";
  }
  return guessed_ldm(config.as<LdmUnetConfig>().unet);
}

// EDM's is that of Playground 2.5.
std::string diffusion(const ModelConfig& config) {
  const auto& c = config.as<LdmUnetConfig>();
  if (c.prediction == "edm") return "{precond=edm sigma_data=0.5}";
  return str("{precond=", c.prediction, " ", ldm_family(c.unet).diffusion,
             c.zero_snr ? " zero_snr=comfy}" : "}");
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
                       .examine = examine,
                       .places = places,
                       .guessed = guessed,
                       .diffusion = diffusion};
  return m;
}

}  // namespace ebb::models
