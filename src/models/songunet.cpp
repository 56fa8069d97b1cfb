// SongUNet: DDPM++ and NCSN++ (Song et al. 2021, arXiv:2011.13456) in the form of EDM (Karras et
// al. 2022, arXiv:2206.00364, appendix F.1).
#include <cmath>

#include "models/model.h"
#include "models/names.h"
#include "nn/edm_unet.h"

namespace ebb::models {
namespace {

using nn::Params;

struct SongUNetConfig {
  CommonConfig common{.image_size = 32};
  int64_t augment = 9;
  int64_t model_channels = 128;
  std::vector<int64_t> channel_mult = {2, 2, 2};
  int64_t channel_mult_emb = 4;
  int64_t channel_mult_noise = 1;
  int64_t num_blocks = 4;
  std::vector<int64_t> attention_resolutions = {16};
  std::string embedding = "positional";
  std::string encoder = "standard";
  std::string decoder = "standard";
  std::vector<double> resample_filter = {1, 1};
  void fields(auto&& f) {
    common.fields(f);
    f("augment", augment, "labels of non-leaking augmentation; 0: none");
    f("model_channels", model_channels, "channels that the multipliers count in");
    f("channel_mult", channel_mult, "multiplier of every level, finest first");
    f("channel_mult_emb", channel_mult_emb, "multiplier of the embedding's width");
    f("channel_mult_noise", channel_mult_noise, "multiplier of the noise embedding's width");
    f("num_blocks", num_blocks, "residual blocks a level");
    f("attention_resolutions", attention_resolutions, "image sizes at which blocks attend");
    f("embedding", embedding, "of the noise level: positional | fourier");
    f("encoder", encoder, "standard | skip | residual: how a pyramid of the input enters");
    f("decoder", decoder, "standard | skip: how every level adds to the output");
    f("resample_filter", resample_filter, "taps of the filter that changes the size");
  }
};

std::vector<Preset> presets() {
  const SongUNetConfig ddpmpp{.common = {.image_size = 32, .dropout = 0.13}};
  SongUNetConfig ddpmpp_cond = ddpmpp;
  ddpmpp_cond.common.classes = 10;
  const auto to_ncsnpp = [](SongUNetConfig c) {
    c.channel_mult_noise = 2;
    c.embedding = "fourier";
    c.encoder = "residual";
    c.resample_filter = {1, 3, 3, 1};
    return c;
  };
  const SongUNetConfig ffhq{.common = {.image_size = 64, .dropout = 0.05},
                            .channel_mult = {1, 2, 2, 2}};
  SongUNetConfig afhq = ffhq;
  afhq.common.dropout = 0.25;
  return {{"ddpmpp_cifar10", "unconditional CIFAR-10, 55.7 M parameters", ddpmpp},
          {"ddpmpp_cifar10_cond", "class-conditional CIFAR-10", ddpmpp_cond},
          {"ncsnpp_cifar10", "unconditional CIFAR-10, NCSN++", to_ncsnpp(ddpmpp)},
          {"ncsnpp_cifar10_cond", "class-conditional CIFAR-10, NCSN++", to_ncsnpp(ddpmpp_cond)},
          {"ffhq64", "FFHQ 64x64, 62 M parameters", ffhq},
          {"ffhq64_ncsnpp", "FFHQ 64x64, NCSN++", to_ncsnpp(ffhq)},
          {"afhq64", "AFHQv2 64x64", afhq},
          {"afhq64_ncsnpp", "AFHQv2 64x64, NCSN++", to_ncsnpp(afhq)}};
}

// ---- blocks --------------------------------------------------------------------------------

constexpr double sqrt_half = 0.70710678118654752440;
constexpr double eps = 1e-6;
constexpr nn::Init xavier = nn::xavier_init;
constexpr nn::Init xavier_near_zero{nn::Init::Kind::xavier, 1e-5};

nn::EdmStyle style_of(const SongUNetConfig& c, const nn::NetworkInputs& in) {
  return {.skip_scale = sqrt_half,
          .eps = eps,
          .adaptive_scale = false,
          .resample_proj = true,
          .taps = c.resample_filter,
          .dropout = c.common.dropout,
          .init = xavier,
          .init_zero = xavier_near_zero,
          .init_attention = {nn::Init::Kind::xavier, std::sqrt(0.2)},
          .random = in.random};
}

// [N,width], sines before cosines.
Value noise_embedding(const Params& p, const SongUNetConfig& c, Value noise) {
  const int64_t width = c.model_channels * c.channel_mult_noise;
  if (c.embedding == "positional")
    return ops::timestep_embedding(noise, width, {.cos_first = false, .endpoint = true});
  const Params q = p / "map_noise";
  const AtScope at = q.enter();
  const Value freqs = q.buffer("freqs", {width / 2}, {.init = "normal", .scale = 16});
  const auto cos_sin = ops::split(ops::fourier_embedding(noise, freqs), 1, 2);
  return ops::concat({cos_sin[1], cos_sin[0]}, 1);
}

Value embedding(const Params& p, const SongUNetConfig& c, const nn::NetworkInputs& in) {
  Value e = noise_embedding(p, c, in.noise);
  const int64_t width = e.shape()[-1], classes = c.common.classes;
  if (classes > 0) {
    const Value hot =
        nn::one_hot(nn::class_ids(in), classes) * std::sqrt(static_cast<double>(classes));
    e = e + nn::linear(p / "map_label", hot, width, {.init = xavier});
  }
  if (c.augment > 0)
    e = e + nn::linear(p / "map_augment", nn::augmentation(in, c.augment), width,
                       {.bias = false, .init = xavier});
  const int64_t out = c.model_channels * c.channel_mult_emb;
  e = ops::silu(nn::linear(p / "map_layer0", e, out, {.init = xavier}));
  return ops::silu(nn::linear(p / "map_layer1", e, out, {.init = xavier}));
}

struct Builder {
  const SongUNetConfig& c;
  const nn::EdmStyle& style;
  Value emb;

  int64_t levels() const { return static_cast<int64_t>(c.channel_mult.size()); }
  int64_t channels(int64_t level) const {
    return c.model_channels * c.channel_mult[static_cast<size_t>(level)];
  }
  std::string at(int64_t level, std::string_view name) const {
    const int64_t r = c.common.image_size >> level;
    return str(r, "x", r, "_", name);
  }
  bool attends(int64_t level) const {
    for (const int64_t r : c.attention_resolutions)
      if (r == c.common.image_size >> level) return true;
    return false;
  }

  // The pyramid of the input joins x [N,H,W,C] after the size was halved; aux is the pyramid.
  Value join(const Params& p, int64_t level, Value x, Value& aux) const {
    if (c.encoder == "skip") {
      aux = nn::resample(aux, nn::Resample::down, c.resample_filter);
      const Params q = p / at(level, "aux_skip");
      return x + nn::conv(q, aux, x.shape()[-1], {.kernel = 1, .init = xavier});
    }
    if (c.encoder != "residual") return x;
    // The convolution keeps the border that the filter behind needs, which adds none itself.
    const Params q = p / at(level, "aux_residual");
    const auto taps = static_cast<int64_t>(c.resample_filter.size());
    const Value y = nn::conv(q, aux, x.shape()[-1], {.pad = 1 + (taps - 1) / 2, .init = xavier});
    const AtScope scope = q.enter();
    const Value small = nn::halve_inside(y, c.resample_filter);
    aux = (x + small) * sqrt_half;
    return aux;
  }

  std::vector<Value> encode(const Params& p, Value image) const {
    std::vector<Value> skips;
    Value x = nn::conv(p / at(0, "conv"), image, c.model_channels, {.init = xavier});
    skips.push_back(x);
    Value aux = image;
    for (int64_t level = 0; level < levels(); ++level) {
      if (level > 0) {
        const nn::EdmBlock down{.out = x.shape()[-1], .resample = nn::Resample::down};
        x = nn::edm_block(p / at(level, "down"), x, emb, style, down);
        x = join(p, level, x, aux);
        skips.push_back(x);
      }
      for (int64_t i = 0; i < c.num_blocks; ++i) {
        const nn::EdmBlock block{.out = channels(level), .heads = attends(level) ? 1 : 0};
        x = nn::edm_block(p / at(level, str("block", i)), x, emb, style, block);
        skips.push_back(x);
      }
    }
    return skips;
  }

  // Adds the output of this level to `sum`, which comes from the coarser one.
  Value output(const Params& p, int64_t level, Value x, Value sum) const {
    const Value h = ops::silu(nn::edm_norm(p / at(level, "aux_norm"), x, eps));
    const Value y =
        nn::conv(p / at(level, "aux_conv"), h, c.common.in_channels, {.init = xavier_near_zero});
    return sum ? y + nn::resample(sum, nn::Resample::up, c.resample_filter) : y;
  }

  Value decode(const Params& p, std::vector<Value> skips) const {
    Value x = skips.back(), sum;
    for (int64_t level = levels() - 1; level >= 0; --level) {
      const int64_t in = x.shape()[-1];
      if (level == levels() - 1) {
        x = nn::edm_block(p / at(level, "in0"), x, emb, style, {.out = in, .heads = 1});
        x = nn::edm_block(p / at(level, "in1"), x, emb, style, {.out = in});
      } else {
        const nn::EdmBlock up{.out = in, .resample = nn::Resample::up};
        x = nn::edm_block(p / at(level, "up"), x, emb, style, up);
      }
      for (int64_t i = 0; i <= c.num_blocks; ++i) {
        const bool last = i == c.num_blocks;
        const nn::EdmBlock block{.out = channels(level), .heads = last && attends(level) ? 1 : 0};
        x = ops::concat({x, skips.back()}, 3);
        skips.pop_back();
        x = nn::edm_block(p / at(level, str("block", i)), x, emb, style, block);
      }
      if (c.decoder == "skip" || level == 0) sum = output(p, level, x, sum);
    }
    return sum;
  }
};

// ---- network -------------------------------------------------------------------------------

void check(const ModelConfig& config) {
  const auto& c = config.as<SongUNetConfig>();
  const auto levels = static_cast<int64_t>(c.channel_mult.size());
  require(levels > 0 && c.num_blocks > 0, "songunet: needs levels (", levels, ") and blocks (",
          c.num_blocks, ")");
  require(c.embedding == "positional" || c.embedding == "fourier",
          "songunet: embedding must be positional or fourier (", c.embedding, ")");
  require(c.encoder == "standard" || c.encoder == "skip" || c.encoder == "residual",
          "songunet: encoder must be standard, skip or residual (", c.encoder, ")");
  require(c.decoder == "standard" || c.decoder == "skip",
          "songunet: decoder must be standard or skip (", c.decoder, ")");
  require(c.model_channels > 0 && c.model_channels % 4 == 0,
          "songunet: model_channels must be at least 4 and divide by 4 (got ", c.model_channels,
          ")");
  require(c.resample_filter.size() % 2 == 0 && !c.resample_filter.empty(),
          "songunet: resample_filter needs an even number of taps (", c.resample_filter.size(),
          ")");
}

Value build(const Params& p, const ModelConfig& config, const nn::NetworkInputs& in) {
  const auto& c = config.as<SongUNetConfig>();
  const nn::EdmStyle style = style_of(c, in);
  const Builder b{c, style, embedding(p, c, in)};
  return b.decode(p / "dec", b.encode(p / "enc", in.x));
}

std::vector<nn::Condition> conditions(const ModelConfig& config) {
  const auto& c = config.as<SongUNetConfig>();
  std::vector<nn::Condition> out = class_conditions(config);
  if (c.augment > 0) out.push_back(nn::augment_condition(c.augment));
  return out;
}

// The sizes halve from level to level.
int64_t size_multiple(const ModelConfig& config) {
  return int64_t{1} << (config.as<SongUNetConfig>().channel_mult.size() - 1);
}

// ---- recognition ---------------------------------------------------------------------------

std::optional<ModelConfig> recognise(const nn::FileShapes& t) {
  const Names n{t};
  const std::vector<int64_t> sizes = edm_resolutions(n);
  if (sizes.empty() || !n.has(str("dec.", sizes[0], "x", sizes[0], "_aux_norm.weight"))) return {};
  const auto name = [&](size_t level, std::string_view rest) {
    return str(sizes[level], "x", sizes[level], "_", rest);
  };
  SongUNetConfig c;
  c.common.image_size = sizes[0];
  c.common.in_channels = n.size("enc." + name(0, "conv.weight"), 1);
  c.common.classes = n.size("map_label.weight", 1);
  c.augment = n.size("map_augment.weight", 1);
  c.model_channels = n.size("enc." + name(0, "conv.weight"), 0);
  c.channel_mult_emb = n.size("map_layer1.weight", 0) / c.model_channels;
  c.channel_mult_noise = n.size("map_layer0.weight", 1) / c.model_channels;
  c.embedding = n.has("map_noise.freqs") ? "fourier" : "positional";
  c.num_blocks = n.count("enc." + name(0, "block"), ".norm0.weight");
  c.channel_mult.clear();
  c.attention_resolutions.clear();
  for (size_t level = 0; level < sizes.size(); ++level) {
    c.channel_mult.push_back(n.size("enc." + name(level, "block0.conv0.weight"), 0) /
                             c.model_channels);
    if (n.has("enc." + name(level, "block0.qkv.weight")))
      c.attention_resolutions.push_back(sizes[level]);
  }
  if (sizes.size() > 1) {
    if (n.has("enc." + name(1, "aux_skip.weight"))) c.encoder = "skip";
    if (n.has("enc." + name(1, "aux_residual.weight"))) c.encoder = "residual";
    if (n.has("dec." + name(1, "aux_norm.weight"))) c.decoder = "skip";
  }
  // The taps are in published files; those of NCSN++ where they are not.
  const int64_t taps =
      sizes.size() > 1 ? n.size("enc." + name(1, "down.conv0.resample_filter"), 3) : 0;
  if (taps == 4 || (taps == 0 && c.embedding == "fourier")) c.resample_filter = {1, 3, 3, 1};
  return preset_of(c, presets());
}

}  // namespace

const Model& songunet() {
  static const Model m{.name = "songunet",
                       .help = "DDPM++ and NCSN++ as in EDM (Karras et al. 2022)",
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
