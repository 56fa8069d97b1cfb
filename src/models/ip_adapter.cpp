// IP-Adapter of Stable Diffusion 1 and XL (Ye et al. 2023, arXiv:2308.06721): keys and values of a
// few tokens that stand for an image, for every layer of the U-Net that attends to text. Names are
// the original's, also of the ids: layers count in the order of nn::image_layers().
//
// Entry points
//   attend  hint: the projected image f32[N,1,C] or, of the kinds resampler and mlp, states of its
//           patches f32[N,P,C]; strength [N,layers] ->
//           image_keys.<layer>, image_values.<layer>, image_strength.<layer>
//   tokens  hint -> tokens [N,T,context], what keys and values are made of
#include <numeric>

#include "models/model.h"
#include "models/names.h"
#include "nn/layers.h"
#include "nn/ldm_control.h"

namespace ebb::models {
namespace {

using nn::Params, nn::ValuesByName;

constexpr int64_t head_channels = 64;  // of the resampler

struct IpAdapterConfig {
  std::string kind = "linear";
  int64_t features = 1024;
  int64_t tokens = 4;
  int64_t context = 768;
  std::vector<int64_t> widths = {320, 640, 1280, 640, 320, 1280};
  std::vector<int64_t> runs = {2, 2, 5, 3, 3, 1};
  int64_t hidden = 0;
  int64_t depth = 0;
  int64_t inner = 0;
  void fields(auto&& f) {
    f("kind", kind, "linear; resampler (plus); mlp (full face); face: FaceID, not implemented");
    f("features", features, "channels of what it reads of the image");
    f("tokens", tokens, "that stand for the image; 0: one a state that it reads (mlp)");
    f("context", context, "channels of a token");
    f("widths", widths, "channels of keys and values, of the first layers, of the next, ...");
    f("runs", runs, "how many layers have each of these widths");
    f("hidden", hidden, "channels of the resampler");
    f("depth", depth, "blocks of the resampler");
    f("inner", inner, "channels of attention in the resampler, in heads of 64");
  }
  int64_t layers() const { return std::accumulate(runs.begin(), runs.end(), int64_t{0}); }
};

std::vector<Preset> presets() {
  const IpAdapterConfig sd1;
  IpAdapterConfig plus{
      .kind = "resampler", .features = 1280, .tokens = 16, .hidden = 768, .depth = 4, .inner = 768};
  IpAdapterConfig xl{
      .features = 1280, .context = 2048, .widths = {640, 1280, 640, 1280}, .runs = {4, 50, 6, 10}};
  IpAdapterConfig xl_h = xl, xl_plus = xl, face = sd1;
  xl_h.features = 1024;
  xl_plus.kind = "resampler";
  xl_plus.tokens = 16;
  xl_plus.hidden = xl_plus.inner = 1280;
  xl_plus.depth = 4;
  face.kind = "mlp";
  face.features = 1280;
  face.tokens = 0;
  return {{"ip_adapter", "of Stable Diffusion 1, 22 M parameters", sd1},
          {"ip_adapter_plus", "plus, of Stable Diffusion 1", plus},
          {"ip_adapter_full_face", "full face, of Stable Diffusion 1", face},
          {"ip_adapter_sdxl", "of Stable Diffusion XL, which reads CLIP bigG", xl},
          {"ip_adapter_sdxl_h", "of Stable Diffusion XL, which reads CLIP H", xl_h},
          {"ip_adapter_sdxl_plus", "plus, of Stable Diffusion XL", xl_plus}};
}

void check(const ModelConfig& config) {
  const auto& c = config.as<IpAdapterConfig>();
  require(
      c.kind != "face",
      "ip_adapter: FaceID adapters and InstantID read what InsightFace's network makes of a face, "
      "which ebb does not have; plus and full-face adapters read the picture itself");
  require(c.kind == "linear" || c.kind == "resampler" || c.kind == "mlp",
          "ip_adapter: kind must be linear, resampler or mlp ('", c.kind, "')");
  require(c.features > 0 && c.context > 0 && (c.tokens > 0) == (c.kind != "mlp"),
          "ip_adapter: needs features (", c.features, "), a context (", c.context, ") and tokens (",
          c.tokens, "; 0 of mlp)");
  require(!c.runs.empty() && c.runs.size() == c.widths.size(), "ip_adapter: needs as many runs (",
          c.runs.size(), ") as widths (", c.widths.size(), ")");
  for (size_t i = 0; i < c.runs.size(); ++i)
    require(c.runs[i] > 0 && c.runs[i] <= 1024 && c.widths[i] > 0,
            "ip_adapter: layers of a width (", c.runs[i], ") must be 1 to 1024, of channels (",
            c.widths[i], ")");
  const bool resampler = c.kind == "resampler";
  require((c.hidden > 0) == resampler && (c.depth > 0) == resampler && c.inner >= 0 &&
              (c.inner >= head_channels) == resampler && c.inner % head_channels == 0,
          "ip_adapter: a resampler, and it alone, has hidden channels (", c.hidden, "), blocks (",
          c.depth, ") and inner channels, a multiple of ", head_channels, " (", c.inner, ")");
}

// ---- network -------------------------------------------------------------------------------

// The latents attend to the states and to themselves.
Value resampled(const Params& p, const IpAdapterConfig& c, Value states, Value latents) {
  const AtScope at = p.enter();
  const Value x = nn::layer_norm(p / "norm1", states, {}),
              y = nn::layer_norm(p / "norm2", latents, {});
  const int64_t n = x.shape()[0], heads = c.inner / head_channels;
  const auto by_heads = [&](Value v) {
    return ops::reshape(v, {n, v.shape()[1], heads, head_channels});
  };
  const Value q = nn::linear(p / "to_q", y, c.inner, {.bias = false}),
              kv = nn::linear(p / "to_kv", ops::concat({x, y}, 1), 2 * c.inner, {.bias = false});
  const auto halves = ops::split(kv, 2, 2);
  const Value o = ops::attention(by_heads(q), by_heads(halves[0]), by_heads(halves[1]), {});
  return nn::linear(p / "to_out", ops::reshape(o, {n, y.shape()[1], c.inner}), c.hidden,
                    {.bias = false});
}

Value resampler(const Params& p, const IpAdapterConfig& c, Value hint) {
  const int64_t n = hint.shape()[0];
  const Value states = nn::linear(p / "proj_in", hint, c.hidden);
  Value x = ops::broadcast_to(p.param("latents", {1, c.tokens, c.hidden}), {n, c.tokens, c.hidden});
  for (int64_t i = 0; i < c.depth; ++i) {
    const Params block = p / "layers" / i, ff = block / 1;
    x = x + resampled(block / 0, c, states, x);
    const Value h =
        nn::linear(ff / 1, nn::layer_norm(ff / 0, x, {}), 4 * c.hidden, {.bias = false});
    x = x + nn::linear(ff / 3, ops::gelu(h), c.hidden, {.bias = false});
  }
  return nn::layer_norm(p / "norm_out", nn::linear(p / "proj_out", x, c.context), {});
}

Value tokens_of(const Params& p, const IpAdapterConfig& c, Value hint) {
  if (c.kind == "resampler") return resampler(p, c, hint);
  const Params proj = p / "proj";
  if (c.kind == "mlp") {
    const Value h = ops::gelu(nn::linear(proj / 0, hint, c.features));
    return nn::layer_norm(proj / 3, nn::linear(proj / 2, h, c.context), {});
  }
  const Value flat = nn::linear(proj, hint, c.tokens * c.context);
  return nn::layer_norm(p / "norm", ops::reshape(flat, {hint.shape()[0], c.tokens, c.context}), {});
}

ValuesByName tokens(const Params& p, const ModelConfig& config, const ValuesByName& in) {
  return {{"tokens", tokens_of(p / "image_proj", config.as<IpAdapterConfig>(),
                               in.at(std::string(nn::hint_image)))}};
}

ValuesByName attend(const Params& p, const ModelConfig& config, const ValuesByName& in) {
  const auto& c = config.as<IpAdapterConfig>();
  const Value x = tokens(p, config, in).at("tokens"),
              strength = in.at(std::string(nn::control_strength));
  ValuesByName out;
  int64_t layer = 0;
  for (size_t run = 0; run < c.runs.size(); ++run)
    for (int64_t i = 0; i < c.runs[run]; ++i, ++layer) {
      const Params q = p / "ip_adapter" / (2 * layer + 1);  // self-attention is between them
      const auto made = [&](const char* name) {
        return nn::linear(q / name, x, c.widths[run], {.bias = false});
      };
      out[nn::image_keys(layer)] = made("to_k_ip");
      out[nn::image_values(layer)] = made("to_v_ip");
      out[nn::image_strength(layer)] = ops::slice(strength, 1, layer, layer + 1);
    }
  return out;
}

std::vector<nn::Condition> hint_input(const ModelConfig& config) {
  constexpr int64_t any = nn::Condition::any, patches_and_class = 257;
  const auto& c = config.as<IpAdapterConfig>();
  const bool projected = c.kind == "linear";
  return {{.name = std::string(nn::hint_image),
           .shape = {projected ? 1 : any, c.features},
           .usual = {projected ? 1 : patches_and_class, c.features}}};
}

std::vector<nn::Condition> inputs(const ModelConfig& config) {
  std::vector<nn::Condition> out = hint_input(config);
  out.push_back({.name = std::string(nn::control_strength),
                 .shape = {config.as<IpAdapterConfig>().layers()},
                 .null = 1});
  return out;
}

// ---- files ---------------------------------------------------------------------------------

// What it reads the image by; false if nothing is known to.
bool recognise_projection(const Names& n, IpAdapterConfig& c) {
  const auto size = [&](const char* name, int64_t dim) {
    return n.size(str("image_proj.", name), dim);
  };
  const auto has = [&](const char* name) { return n.has(str("image_proj.", name)); };
  if (has("proj.weight")) {
    c.features = size("proj.weight", 1);
    c.tokens = c.context > 0 ? size("proj.weight", 0) / c.context : 0;
    return c.tokens > 0;
  }
  if (has("latents")) {
    c.kind = "resampler";
    c.features = size("proj_in.weight", 1);
    c.tokens = size("latents", 1);
    c.hidden = size("latents", 2);
    c.depth = n.count("image_proj.layers.", ".0.to_q.weight");
    c.inner = size("layers.0.0.to_q.weight", 0);
    return true;
  }
  const bool face =
      has("perceiver_resampler.proj_in.weight") || (has("proj.2.weight") && has("norm.weight"));
  if (!face && !has("proj.3.weight")) return false;
  c.kind = face ? "face" : "mlp";
  c.features = size("proj.0.weight", 1);
  c.tokens = 0;
  return true;
}

// InsightFace's networks describe a face by as many numbers; no encoder of CLIP that adapters read
// has so few channels.
constexpr int64_t face_features = 512;

std::optional<ModelConfig> recognise(const nn::FileShapes& t) {
  const Names n{t};
  const auto keys = [](int64_t layer) {
    return str("ip_adapter.", 2 * layer + 1, ".to_k_ip.weight");
  };
  IpAdapterConfig c;
  c.context = n.size(keys(0), 1);
  c.widths.clear();
  c.runs.clear();
  for (int64_t layer = 0; n.has(keys(layer)); ++layer) {
    const int64_t width = n.size(keys(layer), 0);
    if (c.widths.empty() || c.widths.back() != width) {
      c.widths.push_back(width);
      c.runs.push_back(0);
    }
    ++c.runs.back();
  }
  if (c.runs.empty() || !recognise_projection(n, c)) return {};
  if (c.features == face_features) c.kind = "face";
  return c;
}

}  // namespace

const Model& ip_adapter() {
  static const Model m{
      .name = "ip_adapter",
      .help = "IP-Adapter for the U-Nets of Stable Diffusion (Ye et al. 2023)",
      .kind = ModelKind::control_network,
      .presets = presets(),
      .check = check,
      .entries = {{"attend", "keys and values of an image, for the U-Net", inputs, attend},
                  {"tokens", "what stands for the image", hint_input, tokens}},
      .size_multiple = +[](const ModelConfig&) { return int64_t{1}; },
      .recognise = recognise};
  return m;
}

}  // namespace ebb::models
