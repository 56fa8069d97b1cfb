// ESRGAN's generator (RRDBNet; Wang et al. 2018, arXiv:1809.00219) and Real-ESRGAN's (Wang et al.
// 2021, arXiv:2107.10833): an upscaler of dense blocks. Names are Real-ESRGAN's; files of the two
// earlier layouts name the same tensors otherwise.
//
// Entry point
//   upscale  pixels f32[N,H,W,C] in [-1,1] -> pixels [N,kH,kW,C], not clipped
#include <string_view>

#include "models/model.h"
#include "models/names.h"
#include "nn/layers.h"

namespace ebb::models {
namespace {

using nn::Params, nn::ValuesByName;

struct EsrganConfig {
  int64_t image_channels = 3;
  int64_t width = 64;
  int64_t growth = 32;
  int64_t blocks = 23;
  int64_t doublings = 2;
  int64_t unshuffle = 1;
  void fields(auto&& f) {
    f("image_channels", image_channels, "channels of the images");
    f("width", width, "channels between the blocks");
    f("growth", growth, "channels that each convolution of a dense block adds");
    f("blocks", blocks, "residual blocks of three dense blocks");
    f("doublings", doublings, "how often the size doubles behind the blocks");
    f("unshuffle", unshuffle, "side of the squares of pixels that are channels of the first layer");
  }
};

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {"esrgan", "4 times as large, 16.7 M parameters", EsrganConfig{}},
      {"esrgan_x2", "twice as large", EsrganConfig{.unshuffle = 2}},
      {"esrgan_anime6b", "4 times as large, 6 blocks, 4.5 M parameters",
       EsrganConfig{.blocks = 6}}};
  return all;
}

void check(const ModelConfig& config) {
  const auto& c = config.as<EsrganConfig>();
  require(c.image_channels > 0 && c.width > 0 && c.growth > 0 && c.blocks > 0,
          "esrgan: needs channels of images (", c.image_channels, "), layers (", c.width,
          "), dense blocks (", c.growth, ") and blocks (", c.blocks, ")");
  require(c.doublings >= 0 && c.doublings <= 4, "esrgan: doublings must be 0 to 4 (", c.doublings,
          ")");
  require(c.unshuffle == 1 || c.unshuffle == 2 || c.unshuffle == 4,
          "esrgan: unshuffle must be 1, 2 or 4 (", c.unshuffle, ")");
}

// ---- network -------------------------------------------------------------------------------

Value leaky_relu(Value x) {
  return ops::map({x}, [](auto v) { return max(v[0], 0.2 * v[0]); });
}

// Every convolution sees what those before it made.
Value dense_block(const Params& p, Value x, int64_t growth) {
  const AtScope at = p.enter();
  std::vector<Value> all = {x};
  for (int i = 1; i <= 4; ++i)
    all.push_back(leaky_relu(nn::conv(p / str("conv", i), ops::concat(all, -1), growth)));
  const Value y = nn::conv(p / "conv5", ops::concat(all, -1), x.shape()[-1]);
  return ops::map({y, x}, [](auto v) { return 0.2 * v[0] + v[1]; });
}

Value residual_block(const Params& p, Value x, int64_t growth) {
  Value y = x;
  for (int i = 1; i <= 3; ++i) y = dense_block(p / str("rdb", i), y, growth);
  return ops::map({y, x}, [](auto v) { return 0.2 * v[0] + v[1]; });
}

std::vector<nn::Condition> inputs(const ModelConfig& config) {
  constexpr int64_t any = nn::Condition::any;
  return {{.name = "pixels", .shape = {any, any, config.as<EsrganConfig>().image_channels}}};
}

ValuesByName upscale(const Params& p, const ModelConfig& config, const ValuesByName& in) {
  const auto& c = config.as<EsrganConfig>();
  const Value pixels = ops::map({in.at("pixels")}, [](auto v) { return 0.5 * v[0] + 0.5; });
  const Value first = nn::conv(p / "conv_first", nn::pixel_unshuffle(pixels, c.unshuffle), c.width);
  Value x = first;
  for (int64_t i = 0; i < c.blocks; ++i) x = residual_block(p / "body" / i, x, c.growth);
  x = first + nn::conv(p / "conv_body", x, c.width);
  for (int64_t i = 1; i <= c.doublings; ++i)
    x = leaky_relu(nn::conv(p / str("conv_up", i), ops::upsample_nearest2(x), c.width));
  x = nn::conv(p / "conv_last", leaky_relu(nn::conv(p / "conv_hr", x, c.width)), c.image_channels);
  return {{"pixels", ops::map({x}, [](auto v) { return 2.0 * v[0] - 1.0; })}};
}

// ---- files ---------------------------------------------------------------------------------

// How a layout names: the first layer; a convolution of dense block d of block b; the layers
// behind the blocks.
enum class Layout : uint8_t { original, trunk, real };

struct FileNames {
  Layout layout = Layout::real;
  int64_t blocks = 0, doublings = 0;

  // `layer`: Real-ESRGAN's name without .weight or .bias, but for convolutions of blocks.
  std::string of(const std::string& layer) const {
    if (layout == Layout::real) return layer;
    if (layout == Layout::trunk) {
      if (layer == "conv_body") return "trunk_conv";
      if (layer == "conv_hr") return "HRconv";
      return layer.starts_with("conv_up") ? "upconv" + layer.substr(7) : layer;
    }
    if (layer == "conv_first") return "model.0";
    if (layer == "conv_body") return str("model.1.sub.", blocks);
    if (layer == "conv_hr") return str("model.", 3 * doublings + 2);
    if (layer == "conv_last") return str("model.", 3 * doublings + 4);
    return str("model.", 3 * std::stoll(layer.substr(7)));  // an upsampling, it, an activation
  }
  std::string block(int64_t b) const {
    return str(layout == Layout::original ? "model.1.sub."
               : layout == Layout::trunk  ? "RRDB_trunk."
                                          : "body.",
               b, '.');
  }
  std::string conv_of_block(int64_t b, int dense, int conv) const {
    return str(block(b), layout == Layout::real ? "rdb" : "RDB", dense, ".conv", conv,
               layout == Layout::original ? ".0" : "");
  }
};

std::optional<FileNames> names_of(const Names& n) {
  for (const Layout layout : {Layout::real, Layout::trunk, Layout::original}) {
    FileNames f{.layout = layout};
    if (!n.has(f.conv_of_block(0, 1, 1) + ".weight") || !n.has(f.of("conv_first") + ".weight"))
      continue;
    while (n.has(f.conv_of_block(f.blocks, 1, 1) + ".weight")) ++f.blocks;
    while (n.has(f.of(str("conv_up", f.doublings + 1)) + ".weight")) ++f.doublings;
    if (layout != Layout::original) return f;
    // layers 3, 6, ... are upsamplings as long as the two last layers are behind them
    while (!n.has(f.of("conv_last") + ".weight") && f.doublings > 0) --f.doublings;
    return f;
  }
  return {};
}

nn::FilePlaces places(const ModelConfig&, const nn::FileShapes& t) {
  const auto f = names_of(Names{t});
  if (!f || f->layout == Layout::real) return {};
  return [f = *f](const std::string& weight) -> nn::FilePlace {
    const size_t dot = weight.rfind('.');
    const std::string layer = weight.substr(0, dot), rest = weight.substr(dot);
    if (!layer.starts_with("body.")) return {.name = f.of(layer) + rest};
    // body.<b>.rdb<d>.conv<c>
    const size_t dense = layer.find(".rdb"), conv = layer.find(".conv");
    return {.name = f.conv_of_block(std::stoll(layer.substr(5, dense - 5)), layer[dense + 4] - '0',
                                    layer[conv + 5] - '0') +
                    rest};
  };
}

std::optional<ModelConfig> recognise(const nn::FileShapes& t) {
  const Names n{t};
  const auto f = names_of(n);
  // ESRGAN+ has 1x1 convolutions beside those of a dense block
  if (!f || n.has(f->block(0) + "RDB1.conv1x1.weight")) return {};
  EsrganConfig c{.blocks = f->blocks, .doublings = f->doublings};
  const int64_t in = n.size(f->of("conv_first") + ".weight", 1);
  c.image_channels = n.size(f->of("conv_last") + ".weight", 0);
  c.width = n.size(f->of("conv_first") + ".weight", 0);
  c.growth = n.size(f->conv_of_block(0, 1, 1) + ".weight", 0);
  for (const int64_t side : {1, 2, 4})
    if (in == c.image_channels * side * side) c.unshuffle = side;
  if (c.image_channels == 0 || in != c.image_channels * c.unshuffle * c.unshuffle) return {};
  return c;
}

}  // namespace

const Model& esrgan() {
  static const Model m{
      .name = "esrgan",
      .help = "the upscalers ESRGAN and Real-ESRGAN (Wang et al. 2018, 2021)",
      .kind = ModelKind::upscaler,
      .presets = presets(),
      .check = check,
      .entries = {{"upscale", "larger pixels of pixels", inputs, upscale}},
      .size_multiple = +[](const ModelConfig& c) { return c.as<EsrganConfig>().unshuffle; },
      .recognise = recognise,
      .places = places};
  return m;
}

}  // namespace ebb::models
