// CS179: a small U-Net for 28x28 digits, 1 424 321 parameters (the diffusion project of that
// course); noise is ln(sigma). ReLU, no norms, skips taken behind the pooling.
#include "models/model.h"
#include "models/names.h"
#include "nn/layers.h"

namespace ebb::models {
namespace {

using nn::Params;

struct Cs179Config {
  CommonConfig common{.image_size = 28, .in_channels = 1};
  std::vector<int64_t> channels = {64, 128};
  int64_t embedding = 128;
  void fields(auto&& f) {
    common.fields(f);
    f("channels", channels, "of every level, finest first");
    f("embedding", embedding, "width of the embedding of the noise level");
  }
};

// ---- blocks --------------------------------------------------------------------------------

// Two convolutions; the same projection of the embedding is added behind each.
Value pair(const Params& p, Value x, Value emb, int64_t out) {
  const AtScope at = p.enter();
  const Value e = nn::linear(p / "time_proj", emb, out);
  x = nn::conv(p / "conv1", x, out);
  x = ops::relu(x + nn::per_sample(e, x));
  x = nn::conv(p / "conv2", x, out);
  return ops::relu(x + nn::per_sample(e, x));
}

// [N,embedding]; the hidden layer is four times as wide.
Value embedding(const Params& p, Value noise, int64_t width) {
  const Value f = ops::timestep_embedding(noise, width, {.cos_first = false, .endpoint = true});
  return nn::linear(p / 2, ops::silu(nn::linear(p / 0, f, 4 * width)), width);
}

// ---- network -------------------------------------------------------------------------------

void check(const ModelConfig& config) {
  const auto& c = config.as<Cs179Config>();
  const auto levels = static_cast<int64_t>(c.channels.size());
  require(levels > 0, "cs179: needs levels (", levels, ")");
  require(c.embedding > 0 && c.embedding % 2 == 0, "cs179: embedding (", c.embedding,
          ") must be even");
  require(c.common.classes == 0, "cs179: has no classes (", c.common.classes, ")");
  require(c.common.dropout == 0, "cs179: has no dropout (", c.common.dropout, ")");
}

Value build(const Params& root, const ModelConfig& config, const nn::NetworkInputs& in) {
  const auto& c = config.as<Cs179Config>();
  const Params p = root / "unet";
  const Value emb = embedding(p / "time_emb" / "mlp", in.noise, c.embedding);
  const auto levels = static_cast<int64_t>(c.channels.size());

  Value x = in.x;
  std::vector<Value> skips;
  for (int64_t i = 0; i < levels; ++i) {
    x = pair(p / "enc_blocks" / i, x, emb, c.channels[static_cast<size_t>(i)]);
    x = ops::max_pool2(x);
    skips.push_back(x);
  }
  x = pair(p / "bottleneck", x, emb, c.channels.back());
  for (int64_t i = 0; i < levels; ++i) {
    const Params q = p / "dec_blocks" / i;
    const int64_t out = c.channels[static_cast<size_t>(levels - 1 - i)];
    x = pair(q, ops::concat({x, skips.back()}, 3), emb, out);
    skips.pop_back();
    x = nn::conv_up2(q / "upsample", x, out);
  }
  return nn::conv(p / "out_conv", x, c.common.in_channels, {.kernel = 1});
}

// Every level pools, the last one too.
int64_t size_multiple(const ModelConfig& config) {
  return int64_t{1} << config.as<Cs179Config>().channels.size();
}

// The image size leaves no trace in shapes: that of the digits.
std::optional<ModelConfig> recognise(const nn::FileShapes& t) {
  const Names n{t};
  if (!n.has("unet.time_emb.mlp.0.weight") || !n.has("unet.enc_blocks.0.time_proj.weight"))
    return {};
  Cs179Config c;
  c.common.in_channels = n.size("unet.enc_blocks.0.conv1.weight", 1);
  c.embedding = n.size("unet.time_emb.mlp.0.weight", 1);
  c.channels.clear();
  const int64_t levels = n.count("unet.enc_blocks.", ".conv1.weight");
  for (int64_t i = 0; i < levels; ++i)
    c.channels.push_back(n.size(str("unet.enc_blocks.", i, ".conv1.weight"), 0));
  return c;
}

// It reads ln(sigma), not a quarter of it.
std::string diffusion(const ModelConfig&) { return "{noise_scale=1}"; }

}  // namespace

const Model& cs179() {
  static const Model m{.name = "cs179",
                       .help = "a small U-Net for 28x28 digits",
                       .presets = {{"cs179", "MNIST, 1.4 M parameters", Cs179Config{}}},
                       .check = check,
                       .build = build,
                       .size_multiple = size_multiple,
                       .recognise = recognise,
                       .diffusion = diffusion};
  return m;
}

}  // namespace ebb::models
