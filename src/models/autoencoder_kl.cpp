// The autoencoder of latent diffusion (Rombach et al. 2022, arXiv:2112.10752): of Stable Diffusion
// 1, 2 and XL with 4 channels, of 3 and Flux with 16. Names are those of the original files.
//
// Entry points
//   encode  pixels f32[N,H,W,3] in [-1,1] -> mean, logvar [N,H/8,W/8,Z], of which a latent is
//           mean + exp(logvar / 2) * noise, or the mean
//   decode  latents f32[N,h,w,Z] -> pixels [N,8h,8w,3], about in [-1,1], not clipped
// Latents are the autoencoder's own: denoisers shift and scale them (LatentSpace).
#include <algorithm>
#include <numeric>

#include "models/model.h"
#include "models/names.h"
#include "nn/layers.h"

namespace ebb::models {
namespace {

using nn::Params, nn::ValuesByName;

struct AutoencoderKlConfig {
  int64_t image_channels = 3;
  int64_t latent_channels = 4;
  int64_t channels = 128;
  std::vector<int64_t> channel_mult = {1, 2, 4, 4};
  int64_t res_blocks = 2;
  int64_t groups = 32;
  bool quant_conv = true;
  void fields(auto&& f) {
    f("image_channels", image_channels, "channels of the images");
    f("latent_channels", latent_channels, "channels of the latents");
    f("channels", channels, "channels that the multipliers count in");
    f("channel_mult", channel_mult, "multiplier of every level, finest first");
    f("res_blocks", res_blocks, "residual blocks a level of the encoder; the decoder has one more");
    f("groups", groups, "of the norms");
    f("quant_conv", quant_conv, "1x1 convolutions behind the encoder and before the decoder");
  }
};

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {"autoencoder_kl", "of Stable Diffusion 1, 2 and XL: 4 channels, 84 M parameters",
       AutoencoderKlConfig{}},
      {"autoencoder_kl16", "of Stable Diffusion 3 and Flux: 16 channels, 84 M parameters",
       AutoencoderKlConfig{.latent_channels = 16, .quant_conv = false}}};
  return all;
}

void check(const ModelConfig& config) {
  const auto& c = config.as<AutoencoderKlConfig>();
  require(c.image_channels > 0 && c.latent_channels > 0,
          "autoencoder_kl: needs channels of images (", c.image_channels, ") and of latents (",
          c.latent_channels, ")");
  require(!c.channel_mult.empty() && c.res_blocks > 0, "autoencoder_kl: needs levels (",
          c.channel_mult.size(), ") and residual blocks (", c.res_blocks, ")");
  for (const int64_t m : c.channel_mult)
    require(c.groups > 0 && m * c.channels > 0 && m * c.channels % c.groups == 0,
            "autoencoder_kl: channels of a level (", m * c.channels, ") must divide by groups (",
            c.groups, ")");
}

// ---- blocks --------------------------------------------------------------------------------

struct Builder {
  const AutoencoderKlConfig& c;

  size_t levels() const { return c.channel_mult.size(); }
  int64_t channels(size_t level) const { return c.channels * c.channel_mult[level]; }

  Value norm(const Params& p, Value x) const {
    return nn::group_norm(p, x, {.groups = c.groups, .eps = 1e-6});
  }

  Value res(const Params& p, Value x, int64_t out) const {
    const AtScope at = p.enter();
    Value h = nn::conv(p / "conv1", ops::silu(norm(p / "norm1", x)), out);
    h = nn::conv(p / "conv2", ops::silu(norm(p / "norm2", h)), out);
    if (x.shape()[-1] != out) x = nn::conv(p / "nin_shortcut", x, out, {.kernel = 1});
    return x + h;
  }

  // One head as wide as there are channels.
  Value attention(const Params& p, Value x) const {
    const AtScope at = p.enter();
    const Value h = nn::self_attention(p, norm(p / "norm", x),
                                       {.qkv = {.file_dims = 2}, .names = {"q", "k", "v"}});
    return x + nn::conv(p / "proj_out", h, x.shape()[-1], {.kernel = 1});
  }

  Value middle(const Params& p, Value x) const {
    x = res(p / "block_1", x, x.shape()[-1]);
    return res(p / "block_2", attention(p / "attn_1", x), x.shape()[-1]);
  }

  Value last(const Params& p, Value x, int64_t out) const {
    return nn::conv(p / "conv_out", ops::silu(norm(p / "norm_out", x)), out);
  }

  // Mean and logarithm of the variance, side by side.
  Value encoder(const Params& p, Value x) const {
    x = nn::conv(p / "conv_in", x, channels(0));
    for (size_t i = 0; i < levels(); ++i) {
      const Params level = p / "down" / static_cast<int64_t>(i);
      for (int64_t j = 0; j < c.res_blocks; ++j) x = res(level / "block" / j, x, channels(i));
      // zeros below and to the right only
      if (i + 1 < levels())
        x = nn::conv(level / "downsample" / "conv", x, x.shape()[-1],
                     {.stride = 2, .pad = 1, .pad_before = 0});
    }
    return last(p, middle(p / "mid", x), 2 * c.latent_channels);
  }

  Value decoder(const Params& p, Value x) const {
    x = nn::conv(p / "conv_in", x, channels(levels() - 1));
    x = middle(p / "mid", x);
    for (size_t i = levels(); i-- > 0;) {
      const Params level = p / "up" / static_cast<int64_t>(i);
      for (int64_t j = 0; j <= c.res_blocks; ++j) x = res(level / "block" / j, x, channels(i));
      if (i > 0)
        x = nn::conv(level / "upsample" / "conv", ops::upsample_nearest2(x), x.shape()[-1]);
    }
    return last(p, x, c.image_channels);
  }
};

// ---- entry points --------------------------------------------------------------------------

constexpr int64_t any = nn::Condition::any;

std::vector<nn::Condition> encode_inputs(const ModelConfig& config) {
  const auto& c = config.as<AutoencoderKlConfig>();
  return {{.name = "pixels", .shape = {any, any, c.image_channels}}};
}

ValuesByName encode(const Params& p, const ModelConfig& config, const ValuesByName& in) {
  const auto& c = config.as<AutoencoderKlConfig>();
  Value x = Builder{c}.encoder(p / "encoder", in.at("pixels"));
  if (c.quant_conv) x = nn::conv(p / "quant_conv", x, x.shape()[-1], {.kernel = 1});
  const auto halves = ops::split(x, 3, 2);
  return {{"mean", halves[0]},
          {"logvar", ops::map({halves[1]}, [](auto v) { return min(max(v[0], -30.0), 20.0); })}};
}

std::vector<nn::Condition> decode_inputs(const ModelConfig& config) {
  const auto& c = config.as<AutoencoderKlConfig>();
  return {{.name = "latents", .shape = {any, any, c.latent_channels}}};
}

ValuesByName decode(const Params& p, const ModelConfig& config, const ValuesByName& in) {
  const auto& c = config.as<AutoencoderKlConfig>();
  Value x = in.at("latents");
  if (c.quant_conv) x = nn::conv(p / "post_quant_conv", x, c.latent_channels, {.kernel = 1});
  return {{"pixels", Builder{c}.decoder(p / "decoder", x)}};
}

// The sizes halve from level to level.
int64_t size_multiple(const ModelConfig& config) {
  return int64_t{1} << (config.as<AutoencoderKlConfig>().channel_mult.size() - 1);
}

std::optional<LatentSpace> latents(const ModelConfig& config) {
  return LatentSpace{.factor = size_multiple(config), .of = "its own"};
}

// ---- files ---------------------------------------------------------------------------------

// diffusers' names: the decoder's levels count from the coarsest; attention was named in two ways.
struct Diffusers {
  int64_t levels;
  bool old_attention;

  nn::FilePlace operator()(const std::string& weight) const {
    std::string name = weight;
    const auto swap = [&](std::string_view from, std::string_view to) {
      const size_t at = name.find(from);
      if (at != std::string::npos) name.replace(at, from.size(), to);
    };
    if (const size_t at = name.find(".up."); at != std::string::npos) {
      const size_t number = at + 4, end = name.find('.', number);
      const int64_t level = levels - 1 - std::stoll(name.substr(number, end - number));
      name = str(name.substr(0, at), ".up_blocks.", level, name.substr(end));
    }
    swap(".down.", ".down_blocks.");
    swap(".block.", ".resnets.");
    swap(".nin_shortcut.", ".conv_shortcut.");
    swap(".downsample.conv.", ".downsamplers.0.conv.");
    swap(".upsample.conv.", ".upsamplers.0.conv.");
    swap(".norm_out.", ".conv_norm_out.");
    swap(".mid.block_1.", ".mid_block.resnets.0.");
    swap(".mid.block_2.", ".mid_block.resnets.1.");
    swap(".mid.attn_1.norm.", ".mid_block.attentions.0.group_norm.");
    swap(".mid.attn_1.proj_out.", old_attention ? ".mid_block.attentions.0.proj_attn."
                                                : ".mid_block.attentions.0.to_out.0.");
    swap(".mid.attn_1.q.", old_attention ? ".mid.attn_1.query." : ".mid.attn_1.to_q.");
    swap(".mid.attn_1.k.", old_attention ? ".mid.attn_1.key." : ".mid.attn_1.to_k.");
    swap(".mid.attn_1.v.", old_attention ? ".mid.attn_1.value." : ".mid.attn_1.to_v.");
    swap(".mid.attn_1.", ".mid_block.attentions.0.");
    return {.name = name};
  }
};

bool is_diffusers(const Names& n) { return n.has("decoder.up_blocks.0.resnets.0.conv1.weight"); }

nn::FilePlaces places(const ModelConfig& config, const nn::FileShapes& t) {
  const Names n{t};
  if (!is_diffusers(n)) return {};
  const auto& c = config.as<AutoencoderKlConfig>();
  return Diffusers{.levels = static_cast<int64_t>(c.channel_mult.size()),
                   .old_attention = n.has("decoder.mid_block.attentions.0.query.weight")};
}

// Groups leave no trace in shapes: 32, as in all published files, or as many as can be.
std::optional<ModelConfig> recognise(const nn::FileShapes& t) {
  const Names n{t};
  const bool diffusers = is_diffusers(n);
  const std::string down = diffusers ? "encoder.down_blocks." : "encoder.down.";
  const std::string block = diffusers ? ".resnets." : ".block.";
  if (!n.has("decoder.conv_in.weight") || !n.has("encoder.conv_in.weight") ||
      !n.has(down + "0" + block + "0.conv1.weight"))
    return {};
  AutoencoderKlConfig c;
  c.channels = n.size("encoder.conv_in.weight", 0);
  c.image_channels = n.size("encoder.conv_in.weight", 1);
  c.latent_channels = n.size("decoder.conv_in.weight", 1);
  c.groups = std::gcd(c.groups, c.channels);
  c.quant_conv = n.has("quant_conv.weight");
  c.res_blocks = n.count(down + "0" + block, ".conv1.weight");
  c.channel_mult.clear();
  const int64_t levels = n.count(down, block + "0.conv1.weight");
  for (int64_t i = 0; i < levels; ++i)
    c.channel_mult.push_back(n.size(str(down, i, block, "0.conv1.weight"), 0) /
                             std::max<int64_t>(c.channels, 1));
  return c;
}

// The weights of training's loss and averages, in files of the original code.
bool ignored(std::string_view name) {
  return name.starts_with("loss.") || name.starts_with("model_ema.");
}

}  // namespace

const Model& autoencoder_kl() {
  static const Model m{.name = "autoencoder_kl",
                       .help = "the autoencoder of latent diffusion (Rombach et al. 2022)",
                       .kind = ModelKind::autoencoder,
                       .presets = presets(),
                       .check = check,
                       .entries = {{"encode", "mean and logvar of the latents of pixels",
                                    encode_inputs, encode, true},
                                   {"decode", "pixels of latents", decode_inputs, decode, true}},
                       .size_multiple = size_multiple,
                       .latents = latents,
                       .recognise = recognise,
                       .places = places,
                       .ignored = ignored};
  return m;
}

}  // namespace ebb::models
