// CLIP's vision encoder, which IP-Adapters read images by: of OpenAI's CLIP and OpenCLIP's H and
// bigG (Radford et al. 2021, arXiv:2103.00020). Names are Hugging Face's, also the misspelt
// pre_layrnorm.
//
// Entry point
//   encode  pixels f32[N,S,S,3], cut and normalised (pipeline/image_encoder.h) ->
//     states.<n>   [N,1+P,C], n = 1, 2, ..., layers + 1 from the last: the class token and, row by
//                  row, the patches
//     pooled       [N,C]: the class token of states.1 through the final norm
//     projected    [N,D]: pooled times visual_projection, if the config has one
#include <cmath>

#include "models/model.h"
#include "models/names.h"
#include "nn/clip.h"

namespace ebb::models {
namespace {

using nn::Params, nn::ValuesByName;

struct ClipVisionConfig {
  int64_t width = 1280;
  int64_t layers = 32;
  int64_t heads = 16;
  int64_t hidden = 5120;
  int64_t image_size = 224;
  int64_t patch = 14;
  int64_t projection = 1024;
  std::string activation = "gelu";
  void fields(auto&& f) {
    f("width", width, "channels of a token");
    f("layers", layers, "transformer blocks");
    f("heads", heads, "attention heads; must divide width");
    f("hidden", hidden, "width of the hidden layer");
    f("image_size", image_size, "side of the images, in pixels");
    f("patch", patch, "side of a patch, which is a token, in pixels");
    f("projection", projection, "channels of the projected image; 0: there is no projection");
    f("activation", activation, "quick_gelu (OpenAI's CLIP) or gelu (OpenCLIP)");
  }
  int64_t grid() const { return patch > 0 ? image_size / patch : 0; }
};

nn::ClipLayers layers_of(const ClipVisionConfig& c) {
  return {.layers = c.layers, .heads = c.heads, .hidden = c.hidden, .activation = c.activation};
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {"clip_vision_h", "OpenCLIP's H, of most IP-Adapters, 632 M parameters", ClipVisionConfig{}},
      {"clip_vision_g", "OpenCLIP's bigG, of ip-adapter_sdxl, 1.84 B parameters",
       ClipVisionConfig{.width = 1664, .layers = 48, .hidden = 8192, .projection = 1280}},
      {"clip_vision_l", "OpenAI's L, 304 M parameters",
       ClipVisionConfig{.width = 1024,
                        .layers = 24,
                        .hidden = 4096,
                        .projection = 768,
                        .activation = "quick_gelu"}}};
  return all;
}

void check(const ModelConfig& config) {
  const auto& c = config.as<ClipVisionConfig>();
  nn::check(layers_of(c), c.width, "clip_vision");
  require(c.patch > 0 && c.grid() > 0 && c.image_size == c.grid() * c.patch,
          "clip_vision: patches (", c.patch, ") must divide the side of the images (", c.image_size,
          ")");
}

// ---- network -------------------------------------------------------------------------------

Value tokens_of(const Params& p, const ClipVisionConfig& c, Value pixels) {
  const int64_t n = pixels.shape()[0], patches = c.grid() * c.grid();
  require(pixels.shape() == Shape({n, c.image_size, c.image_size, 3}),
          "clip_vision: images must be ", c.image_size, "x", c.image_size, "  ", pixels.type());
  const Value squares = nn::conv(p / "patch_embedding", pixels, c.width,
                                 {.kernel = c.patch, .stride = c.patch, .pad = 0, .bias = false});
  const Value first = ops::broadcast_to(
      ops::reshape(p.param("class_embedding", {c.width}), {1, 1, c.width}), {n, 1, c.width});
  const Value places = nn::clip_table(p / "position_embedding", patches + 1, c.width);
  return ops::concat({first, ops::reshape(squares, {n, patches, c.width})}, 1) +
         ops::reshape(places, {1, patches + 1, c.width});
}

ValuesByName encode(const Params& root, const ModelConfig& config, const ValuesByName& in) {
  const auto& c = config.as<ClipVisionConfig>();
  const Params p = root / "vision_model";
  const Value x =
      nn::layer_norm(p / "pre_layrnorm", tokens_of(p / "embeddings", c, in.at("pixels")), {});
  const std::vector<Value> states = nn::clip_states(p / "encoder" / "layers", x, layers_of(c));
  ValuesByName out;
  for (int64_t n = 1; n <= c.layers + 1; ++n)
    out[str("states.", n)] = states[static_cast<size_t>(c.layers + 1 - n)];
  const Value first = ops::reshape(ops::slice(states.back(), 1, 0, 1), {x.shape()[0], c.width});
  out["pooled"] = nn::layer_norm(p / "post_layernorm", first, {});
  if (c.projection > 0)
    out["projected"] =
        nn::linear(root / "visual_projection", out["pooled"], c.projection, {.bias = false});
  return out;
}

std::vector<nn::Condition> inputs(const ModelConfig& config) {
  const auto& c = config.as<ClipVisionConfig>();
  return {{.name = "pixels", .shape = {c.image_size, c.image_size, 3}}};
}

// ---- files ---------------------------------------------------------------------------------

// Heads and the activation leave no trace in shapes: all published ones have 16 heads, and
// OpenAI's L is the one with 1024 channels.
std::optional<ModelConfig> recognise(const nn::FileShapes& t) {
  const Names n{t};
  const std::string p = "vision_model.", first = p + "encoder.layers.0.mlp.fc1.weight";
  if (!n.has(p + "embeddings.class_embedding") || !n.has(first) ||
      !n.has(p + "pre_layrnorm.weight"))
    return {};
  ClipVisionConfig c;
  c.width = n.size(p + "embeddings.patch_embedding.weight", 0);
  c.patch = n.size(p + "embeddings.patch_embedding.weight", 2);
  c.layers = n.count(p + "encoder.layers.", ".mlp.fc1.weight");
  c.hidden = n.size(first, 0);
  c.projection = n.size("visual_projection.weight", 0);
  const int64_t patches = n.size(p + "embeddings.position_embedding.weight", 0) - 1;
  const auto side = std::llround(std::sqrt(static_cast<double>(std::max<int64_t>(patches, 0))));
  if (side * side != patches || c.patch > 65536 / std::max<int64_t>(side, 1)) return {};
  c.image_size = side * c.patch;
  c.heads = c.width % 16 == 0 ? 16 : 1;
  c.activation = c.width == 1024 ? "quick_gelu" : "gelu";
  return c;
}

std::string guessed(const ModelConfig& config) {
  const auto& c = config.as<ClipVisionConfig>();
  for (const Preset& p : presets())
    if (p.config.as<ClipVisionConfig>().width == c.width) return "";
  return str("heads ", c.heads, ", activation ", c.activation);
}

// A buffer, and the text encoder of files of the whole of CLIP.
bool ignored(std::string_view name) {
  return name.ends_with("position_ids") || name == "logit_scale" ||
         name.starts_with("text_model.") || name.starts_with("text_projection.");
}

}  // namespace

const Model& clip_vision() {
  static const Model m{.name = "clip_vision",
                       .help = "CLIP's vision encoder (Radford et al. 2021)",
                       .kind = ModelKind::image_encoder,
                       .presets = presets(),
                       .check = check,
                       .entries = {{"encode", "states of patches", inputs, encode}},
                       .recognise = recognise,
                       .guessed = guessed,
                       .ignored = ignored};
  return m;
}

}  // namespace ebb::models
