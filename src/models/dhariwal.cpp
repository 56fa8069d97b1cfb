// DhariwalUNet: ADM in the form of EDM (Karras et al. 2022, arXiv:2206.00364, appendix F.2).
#include <algorithm>

#include "models/model.h"
#include "models/names.h"
#include "nn/edm_unet.h"

namespace ebb::models {
namespace {

using nn::Params;

struct DhariwalConfig {
  CommonConfig common{.image_size = 64};
  int64_t augment = 0;
  int64_t model_channels = 192;
  std::vector<int64_t> channel_mult = {1, 2, 3, 4};
  int64_t channel_mult_emb = 4;
  int64_t num_blocks = 3;
  std::vector<int64_t> attention_resolutions = {32, 16, 8};
  void fields(auto&& f) {
    common.fields(f);
    f("augment", augment, "labels of non-leaking augmentation; 0: none");
    f("model_channels", model_channels, "channels that the multipliers count in");
    f("channel_mult", channel_mult, "multiplier of every level, finest first");
    f("channel_mult_emb", channel_mult_emb, "multiplier of the embedding's width");
    f("num_blocks", num_blocks, "residual blocks a level");
    f("attention_resolutions", attention_resolutions, "image sizes at which blocks attend");
  }
};

std::vector<Preset> presets() {
  const DhariwalConfig imagenet{.common = {.image_size = 64, .classes = 1000, .dropout = 0.1}};
  return {{"edm_imagenet64", "class-conditional ImageNet 64x64, 296 M parameters", imagenet}};
}

// ---- network -------------------------------------------------------------------------------

// EDM scales its uniform draws so that they are torch's default.
constexpr nn::Init init = nn::torch_init;
constexpr int64_t head_channels = 64;

Value embedding(const Params& p, const DhariwalConfig& c, const nn::NetworkInputs& in) {
  const int64_t width = c.model_channels * c.channel_mult_emb;
  Value e = ops::timestep_embedding(in.noise, c.model_channels, {});
  if (c.augment > 0)
    e = e + nn::linear(p / "map_augment", nn::augmentation(in, c.augment), c.model_channels,
                       {.bias = false, .init = nn::zero_init});
  e = nn::silu_mlp({p / "map_layer0", p / "map_layer1", width}, e);
  if (c.common.classes > 0) {
    const Value hot = nn::one_hot(nn::class_ids(in), c.common.classes);
    e = e + nn::linear(p / "map_label", hot, width,
                       {.bias = false, .init = {nn::Init::Kind::normal, 1}});
  }
  return ops::silu(e);
}

struct Builder {
  const DhariwalConfig& c;
  const nn::EdmStyle& style;
  Value emb;

  int64_t levels() const { return static_cast<int64_t>(c.channel_mult.size()); }
  std::string at(int64_t level, std::string_view name) const {
    const int64_t r = c.common.image_size >> level;
    return str(r, "x", r, "_", name);
  }
  nn::EdmBlock block(int64_t level) const {
    const int64_t out = c.model_channels * c.channel_mult[static_cast<size_t>(level)];
    const bool attends =
        std::ranges::count(c.attention_resolutions, c.common.image_size >> level) > 0;
    return {.out = out, .heads = attends ? out / head_channels : 0};
  }

  std::vector<Value> encode(const Params& p, Value image) const {
    Value x = nn::conv(p / at(0, "conv"), image, block(0).out, {.init = init});
    std::vector<Value> skips = {x};
    for (int64_t level = 0; level < levels(); ++level) {
      if (level > 0) {
        const nn::EdmBlock down{.out = x.shape()[-1], .resample = nn::Resample::down};
        x = nn::edm_block(p / at(level, "down"), x, emb, style, down);
        skips.push_back(x);
      }
      for (int64_t i = 0; i < c.num_blocks; ++i) {
        x = nn::edm_block(p / at(level, str("block", i)), x, emb, style, block(level));
        skips.push_back(x);
      }
    }
    return skips;
  }

  Value decode(const Params& p, std::vector<Value> skips) const {
    Value x = skips.back();
    for (int64_t level = levels() - 1; level >= 0; --level) {
      const int64_t in = x.shape()[-1];
      if (level == levels() - 1) {
        const nn::EdmBlock attention{.out = in, .heads = in / head_channels};
        x = nn::edm_block(p / at(level, "in0"), x, emb, style, attention);
        x = nn::edm_block(p / at(level, "in1"), x, emb, style, {.out = in});
      } else {
        const nn::EdmBlock up{.out = in, .resample = nn::Resample::up};
        x = nn::edm_block(p / at(level, "up"), x, emb, style, up);
      }
      for (int64_t i = 0; i <= c.num_blocks; ++i) {
        x = ops::concat({x, skips.back()}, 3);
        skips.pop_back();
        x = nn::edm_block(p / at(level, str("block", i)), x, emb, style, block(level));
      }
    }
    return x;
  }
};

void check(const ModelConfig& config) {
  const auto& c = config.as<DhariwalConfig>();
  const auto levels = static_cast<int64_t>(c.channel_mult.size());
  require(levels > 0 && c.num_blocks > 0, "dhariwal: needs levels (", levels, ") and blocks (",
          c.num_blocks, ")");
  require(c.model_channels % head_channels == 0, "dhariwal: model_channels (", c.model_channels,
          ") must divide by the channels of a head (", head_channels, ")");
}

Value build(const Params& p, const ModelConfig& config, const nn::NetworkInputs& in) {
  const auto& c = config.as<DhariwalConfig>();
  const nn::EdmStyle style{
      .dropout = c.common.dropout, .init = init, .init_attention = init, .random = in.random};
  const Builder b{c, style, embedding(p, c, in)};
  const Value x = b.decode(p / "dec", b.encode(p / "enc", in.x));
  const Value h = ops::silu(nn::edm_norm(p / "out_norm", x, style.eps));
  return nn::conv(p / "out_conv", h, c.common.in_channels, {.init = nn::zero_init});
}

std::vector<nn::Condition> conditions(const ModelConfig& config) {
  const auto& c = config.as<DhariwalConfig>();
  std::vector<nn::Condition> out = class_conditions(config);
  if (c.augment > 0) out.push_back(nn::augment_condition(c.augment));
  return out;
}

// The sizes halve from level to level.
int64_t size_multiple(const ModelConfig& config) {
  return int64_t{1} << (config.as<DhariwalConfig>().channel_mult.size() - 1);
}

// ---- recognition ---------------------------------------------------------------------------

std::optional<ModelConfig> recognise(const nn::FileShapes& t) {
  const Names n{t};
  const std::vector<int64_t> sizes = edm_resolutions(n);
  if (sizes.empty() || !n.has("out_norm.weight") || !n.has("map_layer0.weight")) return {};
  const auto name = [&](size_t level, std::string_view rest) {
    return str("enc.", sizes[level], "x", sizes[level], "_", rest);
  };
  DhariwalConfig c;
  c.common.image_size = sizes[0];
  c.common.in_channels = n.size(name(0, "conv.weight"), 1);
  c.common.classes = n.size("map_label.weight", 1);
  c.augment = n.size("map_augment.weight", 1);
  c.model_channels = n.size("map_layer0.weight", 1);
  c.channel_mult_emb = n.size("map_layer1.weight", 0) / c.model_channels;
  c.num_blocks = n.count(name(0, "block"), ".norm0.weight");
  c.channel_mult.clear();
  c.attention_resolutions.clear();
  for (size_t level = 0; level < sizes.size(); ++level) {
    c.channel_mult.push_back(n.size(name(level, "block0.conv0.weight"), 0) / c.model_channels);
    if (n.has(name(level, "block0.qkv.weight"))) c.attention_resolutions.push_back(sizes[level]);
  }
  return preset_of(c, presets());
}

}  // namespace

const Model& dhariwal() {
  static const Model m{.name = "dhariwal",
                       .help = "ADM as in EDM (Karras et al. 2022)",
                       .presets = presets(),
                       .check = check,
                       .build = build,
                       .size_multiple = size_multiple,
                       .conditions = conditions,
                       .recognise = recognise,
                       .ignored = edm_ignored};
  return m;
}

}  // namespace ebb::models
