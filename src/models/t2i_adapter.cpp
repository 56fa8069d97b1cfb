// T2I-Adapter of Stable Diffusion 1 and XL (Mou et al. 2023, arXiv:2302.08453): features of an
// image that the U-Net's encoder adds to its own, level by level. They depend on the image alone,
// so a run computes them once. Names are the original's.
//
// Entry point
//   features  hint f32[N,H,W,C] in [0,1], 8 pixels to a latent; strength [N,4] -> adapter.0, ...
#include <algorithm>

#include "models/model.h"
#include "models/names.h"
#include "nn/layers.h"
#include "nn/ldm_control.h"

namespace ebb::models {
namespace {

using nn::Params, nn::ValuesByName;

struct T2iAdapterConfig {
  int64_t image_channels = 3;
  std::vector<int64_t> channels = {320, 640, 1280, 1280};
  int64_t blocks = 2;
  int64_t unshuffle = 8;
  bool light = false;
  void fields(auto&& f) {
    f("image_channels", image_channels, "of the image: 3, or 1 of a grey map");
    f("channels", channels, "of the features of each level");
    f("blocks", blocks, "residual blocks a level");
    f("unshuffle", unshuffle, "side of the squares of pixels that are channels; 16: of XL");
    f("light", light, "residual blocks of a quarter of the channels");
  }
};

std::vector<Preset> presets() {
  return {{"t2i_adapter", "of Stable Diffusion 1, 77 M parameters", T2iAdapterConfig{}},
          {"t2i_adapter_grey", "likewise, of grey maps", T2iAdapterConfig{.image_channels = 1}},
          {"t2i_adapter_light", "a small one", T2iAdapterConfig{.blocks = 4, .light = true}},
          {"t2i_adapter_xl", "of Stable Diffusion XL, 79 M parameters",
           T2iAdapterConfig{.unshuffle = 16}}};
}

void check(const ModelConfig& config) {
  const auto& c = config.as<T2iAdapterConfig>();
  require(c.image_channels > 0 && c.blocks > 0 && c.unshuffle > 0 && c.unshuffle <= 16,
          "t2i_adapter: needs channels (", c.image_channels, "), blocks (", c.blocks,
          ") and squares of up to 16 pixels (", c.unshuffle, ")");
  require(!c.channels.empty() && c.channels.size() < 8, "t2i_adapter: needs 1 to 7 levels (",
          c.channels.size(), ")");
  for (const int64_t n : c.channels)
    require(n > 0 && (!c.light || n % 4 == 0), "t2i_adapter: channels of a level (", n,
            ") must be positive, of a light one multiples of 4");
}

// ---- network -------------------------------------------------------------------------------

// Adapters of XL halve the size once, behind its second level: the first ones are at the size to
// which the U-Net has come by then.
bool halves(const T2iAdapterConfig& c, size_t level) {
  constexpr int64_t xl_unshuffle = 16;
  return c.unshuffle == xl_unshuffle ? level == 2 : level > 0;
}

// The mean of 2x2 pixels, of what there is of them at the borders of odd sides.
Value halved(Value x) {
  const auto even = [](Value v, int64_t dim) {
    const int64_t n = v.shape()[dim];
    return n % 2 == 0 ? v : ops::concat({v, ops::slice(v, dim, n - 1, n)}, dim);
  };
  return ops::avg_pool2(even(even(x, 1), 2));
}

Value residual_block(const Params& p, Value x, int64_t kernel) {
  const AtScope at = p.enter();
  const int64_t channels = x.shape()[-1];
  const Value h = ops::relu(nn::conv(p / "block1", x, channels));
  return nn::conv(p / "block2", h, channels, {.kernel = kernel}) + x;
}

Value full_level(const Params& body, const T2iAdapterConfig& c, size_t level, Value x) {
  for (int64_t i = 0; i < c.blocks; ++i) {
    const Params p = body / (static_cast<int64_t>(level) * c.blocks + i);
    if (x.shape()[-1] != c.channels[level])
      x = nn::conv(p / "in_conv", x, c.channels[level], {.kernel = 1});
    x = residual_block(p, x, 1);
  }
  return x;
}

Value light_level(const Params& body, const T2iAdapterConfig& c, size_t level, Value x) {
  const Params p = body / static_cast<int64_t>(level);
  x = nn::conv(p / "in_conv", x, c.channels[level] / 4, {.kernel = 1});
  for (int64_t i = 0; i < c.blocks; ++i) x = residual_block(p / "body" / i, x, 3);
  return nn::conv(p / "out_conv", x, c.channels[level], {.kernel = 1});
}

std::vector<nn::Condition> inputs(const ModelConfig& config) {
  constexpr int64_t any = nn::Condition::any;
  const auto& c = config.as<T2iAdapterConfig>();
  return {
      {.name = std::string(nn::hint_image), .shape = {any, any, c.image_channels}, .guided = false},
      {.name = std::string(nn::control_strength),
       .shape = {static_cast<int64_t>(c.channels.size())},
       .null = 1,
       .guided = false}};
}

ValuesByName features(const Params& p, const ModelConfig& config, const ValuesByName& in) {
  const auto& c = config.as<T2iAdapterConfig>();
  const Value strength = in.at(std::string(nn::control_strength));
  Value x = nn::pixel_unshuffle(in.at(std::string(nn::hint_image)), c.unshuffle);
  if (!c.light) x = nn::conv(p / "conv_in", x, c.channels[0]);
  ValuesByName out;
  for (size_t level = 0; level < c.channels.size(); ++level) {
    if (halves(c, level)) x = halved(x);
    x = c.light ? light_level(p / "body", c, level, x) : full_level(p / "body", c, level, x);
    const auto i = static_cast<int64_t>(level);
    const Value s = ops::reshape(ops::slice(strength, 1, i, i + 1), {x.shape()[0], 1, 1, 1});
    out[nn::adapter_name(i)] = x * s;
  }
  return out;
}

// ---- files ---------------------------------------------------------------------------------

constexpr std::string_view diffusers_prefix = "adapter.";

bool has_diffusers_names(const nn::FileShapes& t) {
  return !t.empty() && std::ranges::any_of(t, [](const auto& entry) {
    return entry.first.starts_with("adapter.body.");
  });
}

// body.<k>.<rest> of the original for what diffusers calls adapter.body.<level>.<rest>, or
// adapter.body.<level>.resnets.<i>.<rest>; and back.
std::string to_diffusers(const T2iAdapterConfig& c, const std::string& weight) {
  if (!weight.starts_with("body.")) return str(diffusers_prefix, weight);
  const size_t dot = weight.find('.', 5);
  const int64_t k = std::stoll(weight.substr(5, dot - 5));
  std::string rest = weight.substr(dot + 1);
  if (c.light) {
    if (rest.starts_with("body.")) rest = "resnets." + rest.substr(5);
    return str(diffusers_prefix, "body.", k, '.', rest);
  }
  if (rest.starts_with("block")) rest = str("resnets.", k % c.blocks, '.', rest);
  return str(diffusers_prefix, "body.", k / c.blocks, '.', rest);
}

nn::FilePlaces places(const ModelConfig& config, const nn::FileShapes& t) {
  if (!has_diffusers_names(t)) return {};
  return [c = config.as<T2iAdapterConfig>()](const std::string& weight) -> nn::FilePlace {
    return {.name = to_diffusers(c, weight)};
  };
}

// By tensors of the first level and how many levels there are; in the original's names a level is
// not told, so that two blocks are taken, as in all that were published.
std::optional<ModelConfig> recognise(const nn::FileShapes& t) {
  const Names n{t};
  const bool diffusers = has_diffusers_names(t);
  const std::string first = diffusers ? "adapter." : "", body = first + "body.";
  const std::string inner = diffusers ? ".resnets." : ".body.";
  T2iAdapterConfig c;
  c.light = n.has(body + "0.in_conv.weight") && n.has(body + "0.out_conv.weight");
  if (!c.light && (!n.has(first + "conv_in.weight") ||
                   !n.has(body + (diffusers ? "0.resnets.0" : "0") + ".block1.weight")))
    return {};
  const int64_t in =
      c.light ? n.size(body + "0.in_conv.weight", 1) : n.size(first + "conv_in.weight", 1);
  for (const auto& [channels, side] : {std::pair<int64_t, int64_t>{3, 8}, {1, 8}, {3, 16}, {1, 16}})
    if (in == channels * side * side) c.image_channels = channels, c.unshuffle = side;
  if (in != c.image_channels * c.unshuffle * c.unshuffle) return {};
  c.channels.clear();
  if (c.light) {
    c.blocks = n.count(body + "0" + inner, ".block1.weight");
    for (int64_t i = 0; n.has(str(body, i, ".out_conv.weight")); ++i)
      c.channels.push_back(n.size(str(body, i, ".out_conv.weight"), 0));
  } else {
    if (diffusers) c.blocks = n.count(body + "0.resnets.", ".block1.weight");
    const auto block = [&](int64_t level) {
      return diffusers ? str(body, level, ".resnets.0.block1.weight")
                       : str(body, level * c.blocks, ".block1.weight");
    };
    for (int64_t i = 0; n.has(block(i)); ++i) c.channels.push_back(n.size(block(i), 0));
  }
  if (c.channels.empty() || c.blocks == 0) return {};
  return c;
}

}  // namespace

const Model& t2i_adapter() {
  static const Model m{
      .name = "t2i_adapter",
      .help = "T2I-Adapter for the U-Nets of Stable Diffusion (Mou et al. 2023)",
      .kind = ModelKind::control_network,
      .presets = presets(),
      .check = check,
      .entries = {{"features", "what is added to the features of the encoder", inputs, features}},
      .size_multiple = +[](const ModelConfig& c) { return c.as<T2iAdapterConfig>().unshuffle; },
      .recognise = recognise,
      .places = places};
  return m;
}

}  // namespace ebb::models
