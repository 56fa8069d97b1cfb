// Tiny: the demo's network for small class-conditional images, cheap enough to learn in minutes on
// a CPU: few channels at full resolution, most at the bottom, skips added and not concatenated.
#include "models/model.h"
#include "models/names.h"
#include "nn/edm_unet.h"

namespace ebb::models {
namespace {

using nn::Params;

struct TinyConfig {
  CommonConfig common{.image_size = 28, .in_channels = 1, .classes = 10};
  std::vector<int64_t> channels = {16, 32, 80};
  int64_t blocks = 1;
  int64_t embedding = 128;
  int64_t heads = 2;
  void fields(auto&& f) {
    common.fields(f);
    f("channels", channels, "of every level, finest first; the sizes halve");
    f("blocks", blocks, "residual blocks a level, down and up each");
    f("embedding", embedding, "width of the embedding of noise and class");
    f("heads", heads, "attention heads at the coarsest level; 0: no attention");
  }
};

std::vector<Preset> presets() {
  const TinyConfig rgb{.common = {.image_size = 32, .in_channels = 3, .classes = 10}};
  return {{"tiny", "28x28 grey images of 10 classes (MNIST, Fashion-MNIST)", TinyConfig{}},
          {"tiny32", "32x32 colour images of 10 classes (CIFAR-10)", rgb}};
}

// ---- network -------------------------------------------------------------------------------

void check(const ModelConfig& config) {
  const auto& c = config.as<TinyConfig>();
  const auto levels = static_cast<int64_t>(c.channels.size());
  require(levels > 0 && c.blocks > 0, "tiny: needs levels (", levels, ") and blocks (", c.blocks,
          ")");
  for (const int64_t n : c.channels)
    require(
        n >= 4 && (n <= 128 ? n % (n / 4) == 0 : n % 32 == 0),
        "tiny: channels must be at least 4 and divide by the groups of their norms, a fourth as "
        "many, 32 at most (got ",
        n, ")");
  require(c.heads == 0 || c.channels.back() % c.heads == 0, "tiny: heads (", c.heads,
          ") must divide the channels (", c.channels.back(), ")");
  require(c.embedding > 0 && c.embedding % 2 == 0,
          "tiny: embedding must be even and at least 2 (got ", c.embedding, ")");
}

Value embedding(const Params& p, const TinyConfig& c, const nn::NetworkInputs& in) {
  const Value f = ops::timestep_embedding(in.noise, c.embedding, {.endpoint = true});
  Value e = nn::silu_mlp({p / "noise1", p / "noise2", c.embedding}, f);
  if (c.common.classes > 0)
    e = e + nn::class_embedding(p / "class", nn::class_ids(in), {c.common.classes, c.embedding});
  return ops::silu(e);
}

Value build(const Params& p, const ModelConfig& config, const nn::NetworkInputs& in) {
  const auto& c = config.as<TinyConfig>();
  const nn::EdmStyle style{.dropout = c.common.dropout, .random = in.random};
  const Value emb = embedding(p / "embed", c, in);
  const auto levels = static_cast<int64_t>(c.channels.size());
  const auto level_blocks = [&](const Params& q, int64_t level, Value x) {
    const nn::EdmBlock block{.out = x.shape()[-1], .heads = level == levels - 1 ? c.heads : 0};
    for (int64_t i = 0; i < c.blocks; ++i) x = nn::edm_block(q / "block" / i, x, emb, style, block);
    return x;
  };

  Value x = nn::conv(p / "in", in.x, c.channels[0]);
  std::vector<Value> skips;
  for (int64_t i = 0; i < levels; ++i) {
    const Params q = p / "down" / i;
    const int64_t out = c.channels[static_cast<size_t>(i)];
    if (i > 0) x = nn::conv(q / "half", x, out, {.stride = 2});
    x = level_blocks(q, i, x);
    skips.push_back(x);
  }
  for (int64_t i = levels - 1; i >= 0; --i) {
    const Params q = p / "up" / i;
    const Value skip = skips[static_cast<size_t>(i)];
    // The channels shrink before the size grows.
    if (i < levels - 1) {
      const Value small = nn::conv(q / "twice", x, skip.shape()[-1], {.kernel = 1});
      x = ops::upsample_nearest2(small) + skip;
    }
    x = level_blocks(q, i, x);
  }
  const Value h = ops::silu(nn::edm_norm(p / "out_norm", x, style.eps));
  return nn::conv(p / "out", h, c.common.in_channels, {.init = nn::zero_init});
}

// The sizes halve from level to level.
int64_t size_multiple(const ModelConfig& config) {
  return int64_t{1} << (config.as<TinyConfig>().channels.size() - 1);
}

// ---- recognition ---------------------------------------------------------------------------

// Shapes tell neither the image size nor the heads: those of the preset with these channels.
std::optional<ModelConfig> recognise(const nn::FileShapes& t) {
  const Names n{t};
  if (!n.has("embed.noise1.weight") || !n.has("down.0.block.0.norm0.weight")) return {};
  TinyConfig c;
  c.common.in_channels = n.size("in.weight", 1);
  c.common.classes = n.size("embed.class.weight", 0);
  c.embedding = n.size("embed.noise1.weight", 0);
  c.blocks = n.count("down.0.block.", ".norm0.weight");
  c.channels.clear();
  const int64_t levels = n.count("down.", ".block.0.norm0.weight");
  for (int64_t i = 0; i < levels; ++i)
    c.channels.push_back(n.size(str("down.", i, ".block.0.norm0.weight"), 0));
  c.common.image_size = c.common.in_channels == 1 ? 28 : 32;
  if (!n.has(str("down.", levels - 1, ".block.0.qkv.weight"))) c.heads = 0;
  return c;
}

}  // namespace

const Model& tiny() {
  static const Model m{.name = "tiny",
                       .help = "a small class-conditional U-Net for 28x28 and 32x32 images",
                       .presets = presets(),
                       .check = check,
                       .build = build,
                       .size_multiple = size_multiple,
                       .recognise = recognise};
  return m;
}

}  // namespace ebb::models
