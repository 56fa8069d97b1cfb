// DiT: the diffusion transformer on latents (Peebles and Xie 2023, arXiv:2212.09748), adaLN-Zero.
#include <algorithm>
#include <cmath>

#include "models/model.h"
#include "models/names.h"
#include "nn/layers.h"

namespace ebb::models {
namespace {

using nn::Params;

struct DiTConfig {
  CommonConfig common{.image_size = 32, .in_channels = 4, .classes = 1000};
  int64_t patch = 2;
  int64_t width = 1152;
  int64_t depth = 28;
  int64_t heads = 16;
  double mlp_ratio = 4;
  bool null_class = true;
  bool learn_sigma = true;
  void fields(auto&& f) {
    common.fields(f);
    f("patch", patch, "side of the square that becomes a token, pixels");
    f("width", width, "channels of a token");
    f("depth", depth, "transformer blocks");
    f("heads", heads, "attention heads; must divide width");
    f("mlp_ratio", mlp_ratio, "width of the hidden layer over width");
    f("null_class", null_class, "one class more, for no class (classifier-free guidance)");
    f("learn_sigma", learn_sigma, "the output has the variance behind the noise");
  }
};

struct Size {
  const char* name;
  int64_t width, depth, heads;
};
constexpr Size sizes[] = {
    {"s", 384, 12, 6}, {"b", 768, 12, 12}, {"l", 1024, 24, 16}, {"xl", 1152, 28, 16}};

std::vector<Preset> presets() {
  std::vector<Preset> out;
  const auto add = [&](const Size& s, int64_t patch, int64_t image, const std::string& end) {
    const DiTConfig c{.common = {.image_size = image / 8, .in_channels = 4, .classes = 1000},
                      .patch = patch,
                      .width = s.width,
                      .depth = s.depth,
                      .heads = s.heads};
    out.push_back({str("dit_", s.name, patch, end),
                   str("latents of ImageNet ", image, "x", image, ", patch ", patch), c});
  };
  add(sizes[3], 2, 256, "");
  add(sizes[3], 2, 512, "_512");
  for (const Size& s : sizes)
    for (const int64_t patch : {2, 4, 8})
      if (s.depth != 28 || patch != 2) add(s, patch, 256, "");
  return out;
}

// ---- blocks --------------------------------------------------------------------------------

constexpr nn::Init xavier = nn::xavier_init;
constexpr nn::Init normal02{nn::Init::Kind::normal, 0.02};
constexpr int64_t frequencies = 256;

Value mlp(const Params& p, Value x, int64_t hidden) {
  const Value h = ops::gelu_tanh(nn::linear(p / "fc1", x, hidden, {.init = xavier}));
  return nn::linear(p / "fc2", h, x.shape()[-1], {.init = xavier});
}

Value attention(const Params& p, Value x, int64_t heads) {
  const Value h = nn::self_attention(p / "qkv", x, {.heads = heads, .qkv = {.init = xavier}});
  return nn::linear(p / "proj", h, x.shape()[-1], {.init = xavier});
}

Value norm_modulated(Value x, Value shift, Value scale) {
  return ops::modulate(ops::layer_norm(x, {}, {}, {.eps = 1e-6}), shift, scale);
}

// shift, scale, gate of the attention and of the MLP; e is silu of the condition [N,D].
Value block(const Params& p, Value x, Value e, const DiTConfig& c) {
  const AtScope at = p.enter();
  const Value all = nn::linear(p / "adaLN_modulation" / 1, e, 6 * c.width, {.init = nn::zero_init});
  const auto m = ops::split(all, 1, 6);
  const Value a = attention(p / "attn", norm_modulated(x, m[0], m[1]), c.heads);
  x = x + nn::per_sample(m[2], x) * a;
  const auto hidden = static_cast<int64_t>(c.mlp_ratio * static_cast<double>(c.width));
  return x + nn::per_sample(m[5], x) * mlp(p / "mlp", norm_modulated(x, m[3], m[4]), hidden);
}

Value condition(const Params& p, const DiTConfig& c, const nn::NetworkInputs& in) {
  const Params t = p / "t_embedder" / "mlp";
  const Value f = ops::timestep_embedding(in.noise, frequencies, {});
  Value e = nn::silu_mlp({t / 0, t / 2, c.width, normal02}, f);
  if (c.common.classes > 0) {
    const Params y = p / "y_embedder" / "embedding_table";
    const int64_t rows = c.common.classes + (c.null_class ? 1 : 0);
    e = e + nn::class_embedding(y, nn::class_ids(in), {rows, c.width, c.null_class, normal02});
  }
  return ops::silu(e);
}

// ---- network -------------------------------------------------------------------------------

void check(const ModelConfig& config) {
  const auto& c = config.as<DiTConfig>();
  require(c.patch > 0 && c.common.image_size % c.patch == 0, "dit: patch (", c.patch,
          ") must divide image_size (", c.common.image_size, ")");
  require(c.heads > 0 && c.width % c.heads == 0, "dit: heads (", c.heads, ") must divide width (",
          c.width, ")");
  require(c.width > 0 && c.width % 4 == 0, "dit: width must be at least 4 and divide by 4 (got ",
          c.width, ")");
  require(c.common.dropout == 0, "dit: has no dropout (", c.common.dropout, ")");
  require(c.depth > 0 && c.mlp_ratio > 0, "dit: needs blocks (", c.depth, ") and an MLP (ratio ",
          c.mlp_ratio, ")");
}

Value build(const Params& p, const ModelConfig& config, const nn::NetworkInputs& in) {
  const auto& c = config.as<DiTConfig>();
  const int64_t n = in.x.shape()[0], side = c.common.image_size / c.patch, k = c.patch;
  const int64_t out = c.common.in_channels * (c.learn_sigma ? 2 : 1);

  Value x = nn::conv(p / "x_embedder" / "proj", in.x, c.width,
                     {.kernel = k, .stride = k, .pad = 0, .init = xavier});
  x = ops::reshape(x, {n, side * side, c.width});
  x = x + p.buffer("pos_embed", {1, side * side, c.width}, {.init = "sin_cos_2d"});

  const Value e = condition(p, c, in);
  for (int64_t i = 0; i < c.depth; ++i) x = block(p / "blocks" / i, x, e, c);

  const Params f = p / "final_layer";
  const Value all = nn::linear(f / "adaLN_modulation" / 1, e, 2 * c.width, {.init = nn::zero_init});
  const auto m = ops::split(all, 1, 2);
  x = nn::linear(f / "linear", norm_modulated(x, m[0], m[1]), k * k * out, {.init = nn::zero_init});
  x = ops::permute(ops::reshape(x, {n, side, side, k, k, out}), {0, 1, 3, 2, 4, 5});
  return ops::reshape(x, {n, side * k, side * k, out});
}

// Four channels are those of Stable Diffusion's autoencoder, which DiT was published with.
std::optional<LatentSpace> latents(const ModelConfig& config) {
  if (config.common().in_channels != 4) return {};
  return LatentSpace{.factor = 8, .of = "Stable Diffusion's autoencoder", .scale = 0.18215};
}

// ---- recognition ---------------------------------------------------------------------------

// The published size of this width and depth; null if there is none.
const Size* size_like(const DiTConfig& c) {
  for (const Size& s : sizes)
    if (s.width == c.width && s.depth == c.depth) return &s;
  return nullptr;
}

// Heads leave no trace in shapes: those of the published size of this width, else 64 channels each.
std::optional<ModelConfig> recognise(const nn::FileShapes& t) {
  const Names n{t};
  if (!n.has("x_embedder.proj.weight") || !n.has("blocks.0.adaLN_modulation.1.weight") ||
      !n.has("final_layer.linear.weight"))
    return {};
  DiTConfig c;
  c.width = n.size("x_embedder.proj.weight", 0);
  c.common.in_channels = n.size("x_embedder.proj.weight", 1);
  c.patch = n.size("x_embedder.proj.weight", 2);
  c.depth = n.count("blocks.", ".adaLN_modulation.1.weight");
  c.mlp_ratio =
      static_cast<double>(n.size("blocks.0.mlp.fc1.weight", 0)) / static_cast<double>(c.width);
  c.common.classes = n.size("y_embedder.embedding_table.weight", 0);
  // Published tables end with the row of no class; their counts of classes are round.
  c.null_class = c.common.classes % 10 == 1;
  if (c.null_class) --c.common.classes;
  c.learn_sigma =
      n.size("final_layer.linear.weight", 0) == 2 * c.patch * c.patch * c.common.in_channels;
  const int64_t tokens = n.size("pos_embed", 1);
  if (tokens > 0)
    c.common.image_size = c.patch * std::lround(std::sqrt(static_cast<double>(tokens)));
  const Size* known = size_like(c);
  c.heads = known ? known->heads : std::max<int64_t>(1, c.width / 64);
  return c;
}

std::string guessed(const ModelConfig& config) {
  const auto& c = config.as<DiTConfig>();
  return size_like(c) ? "" : str("heads ", c.heads);
}

std::string diffusion(const ModelConfig& config) {
  return str("{precond=eps learn_sigma=", config.as<DiTConfig>().learn_sigma ? "true" : "false",
             "}");
}

}  // namespace

const Model& dit() {
  static const Model m{.name = "dit",
                       .help = "the diffusion transformer (Peebles and Xie 2023)",
                       .presets = presets(),
                       .check = check,
                       .build = build,
                       .latents = latents,
                       .recognise = recognise,
                       .guessed = guessed,
                       .diffusion = diffusion};
  return m;
}

}  // namespace ebb::models
