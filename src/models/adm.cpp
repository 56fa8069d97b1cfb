// ADM: the U-Net of guided-diffusion in pixel space (Dhariwal and Nichol 2021, arXiv:2105.05233,
// sections 3 and 4), with all the options of its published checkpoints and those of improved
// diffusion (arXiv:2102.09672).
#include <algorithm>
#include <cmath>

#include "models/model.h"
#include "models/names.h"
#include "nn/layers.h"

namespace ebb::models {
namespace {

using nn::Params;

struct AdmConfig {
  CommonConfig common{.image_size = 64};
  int64_t model_channels = 192;
  std::vector<double> channel_mult = {1, 2, 3, 4};
  int64_t num_res_blocks = 3;
  std::vector<int64_t> attention_resolutions = {32, 16, 8};
  int64_t num_heads = 4;
  int64_t num_head_channels = 64;
  bool use_scale_shift_norm = true;
  bool resblock_updown = true;
  bool use_new_attention_order = false;
  bool conv_resample = true;
  bool learn_sigma = true;
  void fields(auto&& f) {
    common.fields(f);
    f("model_channels", model_channels, "channels that the multipliers count in");
    f("channel_mult", channel_mult, "multiplier of every level, finest first");
    f("num_res_blocks", num_res_blocks, "residual blocks a level");
    f("attention_resolutions", attention_resolutions, "image sizes at which blocks attend");
    f("num_heads", num_heads, "attention heads if num_head_channels is 0");
    f("num_head_channels", num_head_channels, "channels a head; 0: num_heads heads");
    f("use_scale_shift_norm", use_scale_shift_norm, "the embedding scales and shifts a norm");
    f("resblock_updown", resblock_updown, "residual blocks change the size");
    f("use_new_attention_order", use_new_attention_order, "qkv rows are [3][head][channel]");
    f("conv_resample", conv_resample, "convolutions change the size, if blocks do not");
    f("learn_sigma", learn_sigma, "the output has the variance behind the noise");
  }
};

std::vector<Preset> presets() {
  AdmConfig c64{.common = {.image_size = 64, .classes = 1000, .dropout = 0.1},
                .use_new_attention_order = true};
  AdmConfig c128{.common = {.image_size = 128, .classes = 1000},
                 .model_channels = 256,
                 .channel_mult = {1, 1, 2, 3, 4},
                 .num_res_blocks = 2,
                 .num_heads = 4,
                 .num_head_channels = 0};
  AdmConfig c256{.common = {.image_size = 256, .classes = 1000},
                 .model_channels = 256,
                 .channel_mult = {1, 1, 2, 2, 4, 4},
                 .num_res_blocks = 2};
  AdmConfig c512 = c256;
  c512.common.image_size = 512;
  c512.channel_mult = {0.5, 1, 1, 2, 2, 4, 4};
  const AdmConfig unet64{.common = {.image_size = 64},
                         .model_channels = 64,
                         .num_res_blocks = 2,
                         .attention_resolutions = {16, 8},
                         .num_head_channels = 32,
                         .use_scale_shift_norm = false,
                         .resblock_updown = false,
                         .learn_sigma = false};
  return {{"adm64", "class-conditional ImageNet 64x64, 296 M parameters", c64},
          {"adm128", "class-conditional ImageNet 128x128, 422 M parameters", c128},
          {"adm256", "class-conditional ImageNet 256x256, 554 M parameters", c256},
          {"adm512", "class-conditional ImageNet 512x512, 559 M parameters", c512},
          {"unet64", "plain 64x64 U-Net of the training benchmarks, 22 M parameters", unet64}};
}

// ---- blocks --------------------------------------------------------------------------------

constexpr ops::GroupNorm norm32{.groups = 32, .eps = 1e-5};

enum class Size { same, half, twice };

struct Builder {
  const AdmConfig& c;
  Value emb;  // silu of the embedding, [N,4*model_channels]
  std::optional<ops::RandomKeys> random;

  int64_t channels(size_t level) const {
    return static_cast<int64_t>(c.channel_mult[level] * static_cast<double>(c.model_channels));
  }
  bool attends(int64_t resolution) const {
    return std::ranges::count(c.attention_resolutions, resolution) > 0;
  }

  static Value resized(Value x, Size size) {
    if (size == Size::half) return ops::avg_pool2(x);
    return size == Size::twice ? ops::upsample_nearest2(x) : x;
  }

  Value res(const Params& p, Value x, int64_t out, Size size = Size::same) const {
    const AtScope at = p.enter();
    Value h = ops::silu(nn::group_norm(p / "in_layers" / 0, x, norm32));
    h = nn::conv(p / "in_layers" / 2, resized(h, size), out);
    const int64_t affine = c.use_scale_shift_norm ? 2 * out : out;
    const Value e = nn::linear(p / "emb_layers" / 1, emb, affine);
    if (c.use_scale_shift_norm) {
      const auto scale_shift = ops::split(e, 1, 2);
      h = nn::group_norm(p / "out_layers" / 0, h, norm32);
      h = ops::modulate(h, scale_shift[1], scale_shift[0]);
    } else {
      h = nn::group_norm(p / "out_layers" / 0, h + nn::per_sample(e, h), norm32);
    }
    h = nn::dropout(p, ops::silu(h), c.common.dropout, random);
    h = nn::conv(p / "out_layers" / 3, h, out, {.init = nn::zero_init});
    x = resized(x, size);
    if (x.shape()[-1] != out) x = nn::conv(p / "skip_connection", x, out, {.kernel = 1});
    return x + h;
  }

  Value attention(const Params& p, Value x) const {
    const AtScope at = p.enter();
    const int64_t channels = x.shape()[-1];
    require(c.num_head_channels == 0 || channels % c.num_head_channels == 0,
            "adm: num_head_channels (", c.num_head_channels, ") must divide the channels (",
            channels, ")  at ", p.path());
    const Value h = nn::self_attention(
        p / "qkv", nn::group_norm(p / "norm", x, norm32),
        {.heads = c.num_head_channels > 0 ? channels / c.num_head_channels : c.num_heads,
         .order = c.use_new_attention_order ? nn::QkvOrder::qkv_head_channel
                                            : nn::QkvOrder::head_qkv_channel,
         .qkv = {.file_dims = 1}});
    return x + nn::linear(p / "proj_out", h, channels, {.init = nn::zero_init, .file_dims = 1});
  }

  // Layer `i` of block `p` is the one that changes the size.
  Value down(const Params& p, Value x) const {
    if (c.resblock_updown) return res(p / 0, x, x.shape()[-1], Size::half);
    if (!c.conv_resample) return ops::avg_pool2(x);
    return nn::conv(p / 0 / "op", x, x.shape()[-1], {.stride = 2});
  }
  Value up(const Params& p, Value x) const {
    if (c.resblock_updown) return res(p, x, x.shape()[-1], Size::twice);
    x = ops::upsample_nearest2(x);
    return c.conv_resample ? nn::conv(p / "conv", x, x.shape()[-1]) : x;
  }
};

// ---- network -------------------------------------------------------------------------------

void check(const ModelConfig& config) {
  const auto& c = config.as<AdmConfig>();
  const auto levels = static_cast<int64_t>(c.channel_mult.size());
  require(levels > 0 && c.num_res_blocks > 0, "adm: needs levels (", levels,
          ") and residual blocks (", c.num_res_blocks, ")");
  require(c.model_channels > 0 && c.model_channels % 2 == 0,
          "adm: model_channels must be even and at least 2 (got ", c.model_channels, ")");
  for (const double m : c.channel_mult) {
    const double channels = std::floor(m * static_cast<double>(c.model_channels));
    require(
        channels >= 32 && std::fmod(channels, 32) == 0,
        "adm: channels of a level must be at least 32 and divide by 32, the groups of its norms "
        "(got ",
        channels, ")");
  }
}

Value embedding(const Params& p, const AdmConfig& c, const nn::NetworkInputs& in) {
  const int64_t width = 4 * c.model_channels;
  const Value t = ops::timestep_embedding(in.noise, c.model_channels, {});
  Value e = nn::silu_mlp({p / "time_embed" / 0, p / "time_embed" / 2, width}, t);
  if (c.common.classes > 0)
    e = e + nn::class_embedding(p / "label_emb", nn::class_ids(in), {c.common.classes, width});
  return ops::silu(e);
}

Value build(const Params& p, const ModelConfig& config, const nn::NetworkInputs& in) {
  const auto& c = config.as<AdmConfig>();
  const Builder b{c, embedding(p, c, in), in.random};
  const size_t levels = c.channel_mult.size();
  int64_t resolution = c.common.image_size;

  Value x = nn::conv(p / "input_blocks" / 0 / 0, in.x, b.channels(0));
  std::vector<Value> skips = {x};
  for (size_t level = 0; level < levels; ++level) {
    for (int64_t i = 0; i < c.num_res_blocks; ++i) {
      const Params q = p / "input_blocks" / static_cast<int64_t>(skips.size());
      x = b.res(q / 0, x, b.channels(level));
      if (b.attends(resolution)) x = b.attention(q / 1, x);
      skips.push_back(x);
    }
    if (level + 1 == levels) break;
    x = b.down(p / "input_blocks" / static_cast<int64_t>(skips.size()), x);
    skips.push_back(x);
    resolution /= 2;
  }

  const Params m = p / "middle_block";
  x = b.res(m / 0, x, x.shape()[-1]);
  x = b.attention(m / 1, x);
  x = b.res(m / 2, x, x.shape()[-1]);

  for (size_t level = levels, k = 0; level-- > 0;) {
    for (int64_t i = 0; i <= c.num_res_blocks; ++i, ++k) {
      const Params q = p / "output_blocks" / static_cast<int64_t>(k);
      x = b.res(q / 0, ops::concat({x, skips.back()}, 3), b.channels(level));
      skips.pop_back();
      if (b.attends(resolution)) x = b.attention(q / 1, x);
      if (level > 0 && i == c.num_res_blocks) x = b.up(q / (b.attends(resolution) ? 2 : 1), x);
    }
    resolution *= 2;
  }
  x = ops::silu(nn::group_norm(p / "out" / 0, x, norm32));
  const int64_t out = c.common.in_channels * (c.learn_sigma ? 2 : 1);
  return nn::conv(p / "out" / 2, x, out, {.init = nn::zero_init});
}

// The sizes halve from level to level.
int64_t size_multiple(const ModelConfig& config) {
  return int64_t{1} << (config.as<AdmConfig>().channel_mult.size() - 1);
}

// ---- recognition ---------------------------------------------------------------------------

// Heads and the order of qkv leave no trace in shapes, and neither does the image size: a preset of
// the same shapes decides, else 64 channels a head (or 4 heads), the old order, 8x8 at the bottom.
std::optional<ModelConfig> recognise(const nn::FileShapes& t) {
  const Names n{t};
  if (!n.has("input_blocks.0.0.weight") || !n.has("time_embed.0.weight") ||
      !n.has("middle_block.1.qkv.weight"))
    return {};
  AdmConfig c;
  c.model_channels = n.size("time_embed.0.weight", 1);
  c.common.in_channels = n.size("input_blocks.0.0.weight", 1);
  c.common.classes = n.has("label_emb.weight") ? n.size("label_emb.weight", 0) : 0;
  c.learn_sigma = n.size("out.2.weight", 0) == 2 * c.common.in_channels;
  c.use_scale_shift_norm = n.size("middle_block.0.emb_layers.1.weight", 0) ==
                           2 * n.size("middle_block.0.in_layers.2.weight", 0);
  const int64_t outputs = n.count("output_blocks.", ".0.in_layers.2.weight");
  // The first block of the decoder that has an upsampling layer ends the coarsest level.
  const auto resizes = [&](int64_t k, const char* what) {
    const std::string q = str("output_blocks.", k);
    return n.has(q + ".1." + what) || n.has(q + ".2." + what);
  };
  int64_t last = 0;
  const auto ends_level = [&](int64_t k) {
    return resizes(k, "in_layers.2.weight") || resizes(k, "conv.weight");
  };
  while (last < outputs && !ends_level(last)) ++last;
  c.resblock_updown = resizes(last, "in_layers.2.weight");
  c.conv_resample = c.resblock_updown || last < outputs;
  if (last == outputs) {  // no layer has parameters: input blocks are missing where sizes change
    last = 0;
    while (n.has(str("input_blocks.", last + 1, ".0.in_layers.2.weight"))) ++last;
  }
  c.num_res_blocks = last;
  const int64_t levels = outputs / (last + 1);
  c.common.image_size = int64_t{8} << (levels - 1);
  c.channel_mult.clear();
  c.attention_resolutions.clear();
  for (int64_t level = 0; level < levels; ++level) {
    const std::string q = str("input_blocks.", (last + 1) * level + 1);
    c.channel_mult.push_back(static_cast<double>(n.size(q + ".0.in_layers.2.weight", 0)) /
                             static_cast<double>(c.model_channels));
    if (n.has(q + ".1.qkv.weight")) c.attention_resolutions.push_back(c.common.image_size >> level);
    if ((n.has(q + ".1.qkv.weight") || level + 1 == levels) &&
        n.size(q + ".0.in_layers.2.weight", 0) % 64 != 0)
      c.num_head_channels = 0;
  }
  return preset_of(c, presets(), [](AdmConfig& same, const AdmConfig& known) {
    same.num_heads = known.num_heads;
    same.num_head_channels = known.num_head_channels;
    same.use_new_attention_order = known.use_new_attention_order;
  });
}

std::string guessed(const ModelConfig& config) {
  for (const Preset& preset : presets())
    if (config == preset.config) return "";
  const auto& c = config.as<AdmConfig>();
  return str(c.num_head_channels > 0 ? str("num_head_channels ", c.num_head_channels)
                                     : str("num_heads ", c.num_heads),
             ", use_new_attention_order ", c.use_new_attention_order ? "true" : "false",
             ", image_size ", c.common.image_size);
}

// 64x64 was published with cosine betas, the larger ones with linear ones.
std::string diffusion(const ModelConfig& config) {
  const auto& c = config.as<AdmConfig>();
  return str("{precond=eps betas=", c.common.image_size == 64 ? "cosine" : "linear",
             " learn_sigma=", c.learn_sigma ? "true" : "false", "}");
}

}  // namespace

const Model& adm() {
  static const Model m{.name = "adm",
                       .help = "the guided-diffusion U-Net (Dhariwal and Nichol 2021)",
                       .presets = presets(),
                       .check = check,
                       .build = build,
                       .size_multiple = size_multiple,
                       .recognise = recognise,
                       .guessed = guessed,
                       .diffusion = diffusion};
  return m;
}

}  // namespace ebb::models
