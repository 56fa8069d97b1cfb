// Real-ESRGAN's compact upscaler (SRVGGNetCompact; Wang et al. 2021, arXiv:2107.10833): a row of
// convolutions at the size of the input, whose result is added to the enlarged input.
//
// Entry point
//   upscale  pixels f32[N,H,W,C] in [-1,1] -> pixels [N,kH,kW,C], not clipped
#include "models/model.h"
#include "models/names.h"
#include "nn/layers.h"

namespace ebb::models {
namespace {

using nn::Params, nn::ValuesByName;

constexpr int64_t most_scale = 16;

struct EsrganCompactConfig {
  int64_t image_channels = 3;
  int64_t width = 64;
  int64_t layers = 32;
  int64_t scale = 4;
  void fields(auto&& f) {
    f("image_channels", image_channels, "channels of the images");
    f("width", width, "channels of all hidden layers");
    f("layers", layers, "convolutions between the first and the last");
    f("scale", scale, "how many times as large images become");
  }
};

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {"esrgan_compact", "4 times as large, 1.2 M parameters", EsrganCompactConfig{}},
      {"esrgan_compact_video", "4 times as large, 0.6 M parameters",
       EsrganCompactConfig{.layers = 16}}};
  return all;
}

void check(const ModelConfig& config) {
  const auto& c = config.as<EsrganCompactConfig>();
  require(c.image_channels > 0 && c.width > 0 && c.layers >= 0,
          "esrgan_compact: needs channels of images (", c.image_channels, ") and layers (", c.width,
          ")");
  require(c.scale > 0 && c.scale <= most_scale, "esrgan_compact: scale must be 1 to ", most_scale,
          " (", c.scale, ")");
}

// A slope a channel for what is below zero.
Value prelu(const Params& p, Value x) {
  const AtScope at = p.enter();
  const Value slope =
      p.param("weight", {x.shape()[-1]}, {.init = "uniform", .scale = 0.25, .decay = false});
  return ops::map({x, slope}, [](auto v) { return max(v[0], 0.0) + v[1] * min(v[0], 0.0); });
}

std::vector<nn::Condition> inputs(const ModelConfig& config) {
  constexpr int64_t any = nn::Condition::any;
  return {{.name = "pixels", .shape = {any, any, config.as<EsrganCompactConfig>().image_channels}}};
}

ValuesByName upscale(const Params& p, const ModelConfig& config, const ValuesByName& in) {
  const auto& c = config.as<EsrganCompactConfig>();
  const Params body = p / "body";
  const Value pixels = ops::map({in.at("pixels")}, [](auto v) { return 0.5 * v[0] + 0.5; });
  Value x = pixels;
  for (int64_t i = 0; i <= c.layers; ++i)
    x = prelu(body / (2 * i + 1), nn::conv(body / (2 * i), x, c.width));
  x = nn::conv(body / (2 * c.layers + 2), x, c.image_channels * c.scale * c.scale);
  x = nn::pixel_shuffle(x, c.scale);
  const Value base = ops::resample(pixels, {.kind = ops::ResampleKind::nearest, .up = c.scale});
  return {{"pixels", ops::map({x, base}, [](auto v) { return 2.0 * (v[0] + v[1]) - 1.0; })}};
}

std::optional<ModelConfig> recognise(const nn::FileShapes& t) {
  const Names n{t};
  const auto layer = [](int64_t i) { return str("body.", i, ".weight"); };
  if (!n.has(layer(0)) || n.size(layer(1), 0) != n.size(layer(0), 0) || n.size(layer(1), 1) != 0)
    return {};
  EsrganCompactConfig c{.image_channels = n.size(layer(0), 1), .width = n.size(layer(0), 0)};
  const int64_t last = n.count("body.", ".weight") - 1;
  c.layers = (last - 2) / 2;
  if (last < 2 || last % 2 != 0 || c.image_channels == 0) return {};
  const int64_t out = n.size(layer(last), 0);
  for (c.scale = 1; c.scale < most_scale && c.image_channels * c.scale * c.scale < out;) ++c.scale;
  if (c.image_channels * c.scale * c.scale != out) return {};
  return c;
}

}  // namespace

const Model& esrgan_compact() {
  static const Model m{.name = "esrgan_compact",
                       .help = "the small upscaler of Real-ESRGAN (Wang et al. 2021)",
                       .kind = ModelKind::upscaler,
                       .presets = presets(),
                       .check = check,
                       .entries = {{"upscale", "larger pixels of pixels", inputs, upscale}},
                       .size_multiple = +[](const ModelConfig&) { return int64_t{1}; },
                       .recognise = recognise};
  return m;
}

}  // namespace ebb::models
