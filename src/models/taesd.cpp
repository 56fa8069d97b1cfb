// TAESD: a small autoencoder that reads and writes the latents of a large one (Bohan 2023,
// github.com/madebyollin/taesd), for previews. Names are those of the original files,
// taesd_encoder. and taesd_decoder. before the number of the layer.
//
// Entry points
//   encode  pixels f32[N,H,W,3] in [-1,1] -> mean [N,H/8,W/8,Z]
//   decode  latents f32[N,h,w,Z] -> pixels [N,8h,8w,3], about in [-1,1], not clipped
// Latents are as denoisers have them: shifted and scaled.
#include <algorithm>

#include "models/model.h"
#include "models/names.h"
#include "nn/layers.h"

namespace ebb::models {
namespace {

using nn::Params, nn::ValuesByName;

struct TaesdConfig {
  int64_t image_channels = 3;
  int64_t latent_channels = 4;
  int64_t width = 64;
  int64_t levels = 3;
  int64_t blocks = 3;
  bool encoder = true;
  bool decoder = true;
  void fields(auto&& f) {
    f("image_channels", image_channels, "channels of the images");
    f("latent_channels", latent_channels, "channels of the latents");
    f("width", width, "channels of all hidden layers");
    f("levels", levels, "how often the size halves");
    f("blocks", blocks, "residual blocks a level; full size has one");
    f("encoder", encoder, "whether it encodes");
    f("decoder", decoder, "whether it decodes");
  }
};

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {{"taesd", "4 channels, 2.4 M parameters", TaesdConfig{}},
                                          {"taesd16", "16 channels: of Stable Diffusion 3 and Flux",
                                           TaesdConfig{.latent_channels = 16}}};
  return all;
}

void check(const ModelConfig& config) {
  const auto& c = config.as<TaesdConfig>();
  require(c.image_channels > 0 && c.latent_channels > 0 && c.width > 0,
          "taesd: needs channels of images (", c.image_channels, "), latents (", c.latent_channels,
          ") and layers (", c.width, ")");
  require(c.blocks > 0 && c.levels >= 0 && c.levels < 16, "taesd: needs blocks (", c.blocks,
          ") and at most 15 levels (", c.levels, ")");
  require(c.encoder || c.decoder, "taesd: needs an encoder or a decoder");
}

// ---- network -------------------------------------------------------------------------------

// Layers are numbered in the order in which they run.
struct Layers {
  Params p;
  int64_t width;
  int64_t at = 0;

  Value conv(Value x, int64_t out, const nn::Conv& a = {}) { return nn::conv(p / at++, x, out, a); }
  Value block(Value x) {
    const Params q = p / at++;
    const AtScope scope = q.enter();
    Value h = ops::relu(nn::conv(q / "conv" / 0, x, width));
    h = ops::relu(nn::conv(q / "conv" / 2, h, width));
    return ops::relu(nn::conv(q / "conv" / 4, h, width) + x);
  }
  Value blocks(Value x, int64_t count) {
    for (int64_t i = 0; i < count; ++i) x = block(x);
    return x;
  }
};

constexpr int64_t any = nn::Condition::any;

std::vector<nn::Condition> encode_inputs(const ModelConfig& config) {
  return {{.name = "pixels", .shape = {any, any, config.as<TaesdConfig>().image_channels}}};
}

ValuesByName encode(const Params& p, const ModelConfig& config, const ValuesByName& in) {
  const auto& c = config.as<TaesdConfig>();
  if (!c.encoder) return {};
  Layers l{p / "taesd_encoder", c.width};
  Value x = ops::map({in.at("pixels")}, [](auto v) { return 0.5 * v[0] + 0.5; });
  x = l.blocks(l.conv(x, c.width), 1);
  for (int64_t i = 0; i < c.levels; ++i)
    x = l.blocks(l.conv(x, c.width, {.stride = 2, .bias = false}), c.blocks);
  return {{"mean", l.conv(x, c.latent_channels)}};
}

std::vector<nn::Condition> decode_inputs(const ModelConfig& config) {
  return {{.name = "latents", .shape = {any, any, config.as<TaesdConfig>().latent_channels}}};
}

ValuesByName decode(const Params& p, const ModelConfig& config, const ValuesByName& in) {
  const auto& c = config.as<TaesdConfig>();
  if (!c.decoder) return {};
  Layers l{p / "taesd_decoder", c.width, 1};  // layer 0 bounds the latents
  Value x = ops::map({in.at("latents")}, [](auto v) { return 3.0 * tanh(v[0] / 3.0); });
  x = ops::relu(l.conv(x, c.width));
  ++l.at;  // the activation is a layer
  for (int64_t i = 0; i < c.levels; ++i) {
    x = l.blocks(x, c.blocks);
    ++l.at;  // and so is what repeats the pixels
    x = l.conv(ops::upsample_nearest2(x), c.width, {.bias = false});
  }
  x = l.conv(l.blocks(x, 1), c.image_channels);
  return {{"pixels", ops::map({x}, [](auto v) { return 2.0 * v[0] - 1.0; })}};
}

int64_t size_multiple(const ModelConfig& config) {
  return int64_t{1} << config.as<TaesdConfig>().levels;
}

std::optional<LatentSpace> latents(const ModelConfig& config) {
  return LatentSpace{.factor = size_multiple(config), .of = "a denoiser", .scaled = true};
}

// ---- files ---------------------------------------------------------------------------------

// Where a file has one of the halves: layer i is <name><i + offset>.
struct Half {
  std::string name;
  int64_t offset = 0;
  bool there = false;
};

// A half alone in a file has bare numbers.
Half find_half(const Names& n, bool decoder) {
  const auto conv_at = [&](const std::string& name, int64_t i) {
    return n.size(str(name, i, ".weight"), 1);
  };
  const std::string last_block = ".conv.0.weight";
  for (const std::string& name :
       {std::string(decoder ? "taesd_decoder." : "taesd_encoder."),
        std::string(decoder ? "decoder.layers." : "encoder.layers."), std::string()}) {
    // The encoder's first layers are a convolution and a block, the decoder's a convolution, an
    // activation and a block; some files do not count what bounds the decoder's latents.
    if (!decoder && conv_at(name, 0) > 0 && n.has(name + "1" + last_block)) return {name, 0, true};
    if (decoder && conv_at(name, 1) > 0 && n.has(name + "3" + last_block)) return {name, 0, true};
    if (decoder && conv_at(name, 0) > 0 && n.has(name + "2" + last_block)) return {name, -1, true};
  }
  return {};
}

nn::FilePlaces places(const ModelConfig&, const nn::FileShapes& t) {
  const Half encoder = find_half(Names{t}, false), decoder = find_half(Names{t}, true);
  return [=](const std::string& weight) -> nn::FilePlace {
    const size_t number = weight.find('.') + 1, end = weight.find('.', number);
    const Half& half = weight.starts_with("taesd_encoder.") ? encoder : decoder;
    const int64_t layer = std::stoll(weight.substr(number, end - number)) + half.offset;
    return {.name = str(half.name, layer, weight.substr(end))};
  };
}

// Layers without a bias change the size; layer 3 is the first block of a level in both halves.
constexpr int64_t most_layers = 512;

std::optional<ModelConfig> recognise(const nn::FileShapes& t) {
  const Names n{t};
  const Half encoder = find_half(n, false), decoder = find_half(n, true);
  if (!encoder.there && !decoder.there) return {};
  TaesdConfig c{.encoder = encoder.there, .decoder = decoder.there};
  const Half& half = decoder.there ? decoder : encoder;
  const auto name = [&](int64_t layer, const char* rest) {
    return str(half.name, layer + half.offset, rest);
  };
  const int64_t first = decoder.there ? 1 : 0;
  int64_t last = first;
  c.blocks = 0, c.levels = 0;
  while (n.has(name(3 + c.blocks, ".conv.0.weight"))) ++c.blocks;
  for (int64_t i = first; i < most_layers; ++i) {
    if (!n.has(name(i, ".weight"))) continue;
    last = i;
    if (!n.has(name(i, ".bias"))) ++c.levels;
  }
  if (c.blocks == 0) c.blocks = 1;
  c.width = n.size(name(first, ".weight"), 0);
  const int64_t in = n.size(name(first, ".weight"), 1), out = n.size(name(last, ".weight"), 0);
  c.image_channels = decoder.there ? out : in;
  c.latent_channels = decoder.there ? in : out;
  return c;
}

}  // namespace

const Model& taesd() {
  static const Model m{.name = "taesd",
                       .help = "a small autoencoder for previews (Bohan 2023)",
                       .kind = ModelKind::autoencoder,
                       .presets = presets(),
                       .check = check,
                       .entries = {{"encode", "latents of pixels", encode_inputs, encode},
                                   {"decode", "pixels of latents", decode_inputs, decode}},
                       .size_multiple = size_multiple,
                       .latents = latents,
                       .recognise = recognise,
                       .places = places};
  return m;
}

}  // namespace ebb::models
