// CLIP's text encoder (Radford et al. 2021, arXiv:2103.00020, section 2.4): CLIP-L of OpenAI, H and
// G of OpenCLIP, as Stable Diffusion 1, 2 and XL read them. Names are Hugging Face's.
//
// Entry points
//   embed              tokens i64[N,T] -> embeddings [N,T,C]: rows of the table, which vectors of
//                      textual inversion may replace
//   encode             tokens, end i64[N] -> the outputs below
//   encode_embeddings  embeddings f32[N,T,C], end -> the same outputs
// Outputs
//   states.<n>         [N,T,C]; n = 1 of the last layer, 2 of the one before it (A1111's and
//                      ComfyUI's clip skip), ..., layers + 1: what enters the first layer
//   states.<n>.normed  through the final norm, as Stable Diffusion 1 and 2 read them
//   pooled             [N,C]: the last layer's state at the end token, through the final norm
//   projected          [N,P]: pooled times text_projection, if the config has one
// `end` is the position of the first end token, 49407, which the tokenizer knows.
#include <algorithm>
#include <array>

#include "models/model.h"
#include "models/names.h"
#include "nn/clip.h"

namespace ebb::models {
namespace {

using nn::Params, nn::ValuesByName;

struct ClipTextConfig {
  int64_t width = 768;
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t hidden = 3072;
  int64_t vocabulary = 49408;
  int64_t positions = 77;
  int64_t projection = 0;
  std::string activation = "quick_gelu";
  void fields(auto&& f) {
    f("width", width, "channels of a token");
    f("layers", layers, "transformer blocks");
    f("heads", heads, "attention heads; must divide width");
    f("hidden", hidden, "width of the hidden layer");
    f("vocabulary", vocabulary, "tokens");
    f("positions", positions, "the most tokens that a text may have");
    f("projection", projection, "channels of the projected text; 0: there is no projection");
    f("activation", activation, "quick_gelu (OpenAI's CLIP) or gelu (OpenCLIP)");
  }
};

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {"clip_l", "of Stable Diffusion 1, the first of XL, 123 M parameters", ClipTextConfig{}},
      {"clip_h", "of Stable Diffusion 2, 354 M parameters",
       ClipTextConfig{.width = 1024,
                      .layers = 24,
                      .heads = 16,
                      .hidden = 4096,
                      .projection = 1024,
                      .activation = "gelu"}},
      {"clip_g", "the second of Stable Diffusion XL, 695 M parameters",
       ClipTextConfig{.width = 1280,
                      .layers = 32,
                      .heads = 20,
                      .hidden = 5120,
                      .projection = 1280,
                      .activation = "gelu"}}};
  return all;
}

nn::ClipLayers layers_of(const ClipTextConfig& c) {
  return {.layers = c.layers,
          .heads = c.heads,
          .hidden = c.hidden,
          .activation = c.activation,
          .causal = true};
}

void check(const ModelConfig& config) {
  const auto& c = config.as<ClipTextConfig>();
  nn::check(layers_of(c), c.width, "clip_text");
  require(c.vocabulary > 0 && c.positions > 0, "clip_text: needs tokens (", c.vocabulary,
          ") and positions (", c.positions, ")");
}

// ---- network -------------------------------------------------------------------------------

// [N,C] of x [N,T,C]: the row at[n] of sample n.
Value row_at(Value x, Value at) {
  const int64_t n = x.shape()[0], t = x.shape()[1];
  const Value id = ops::reshape(ops::cast(at, DType::f32), {n, 1, 1});
  const Value row = ops::iota(*x.graph, {.shape = {1, t, 1}, .dim = 1});
  const Value picked =
      ops::map({x, id, row}, [](auto v) { return select(less(abs(v[1] - v[2]), 0.5), v[0], 0.0); });
  return ops::reshape(ops::sum(picked, {1}), {n, x.shape()[2]});
}

ValuesByName encoded(const Params& root, const ClipTextConfig& c, Value embeddings, Value end) {
  const Params p = root / "text_model";
  const int64_t tokens = embeddings.shape()[1];
  require(tokens <= c.positions, "clip_text: a text may have ", c.positions, " tokens (", tokens,
          ")");
  const Value places =
      nn::clip_table(p / "embeddings" / "position_embedding", c.positions, c.width);
  const std::vector<Value> states = nn::clip_states(
      p / "encoder" / "layers",
      embeddings + ops::reshape(ops::slice(places, 0, 0, tokens), {1, tokens, c.width}),
      layers_of(c));

  ValuesByName out;
  const auto normed = [&](Value x) { return nn::layer_norm(p / "final_layer_norm", x, {}); };
  for (int64_t n = 1; n <= c.layers + 1; ++n) {
    const Value x = states[static_cast<size_t>(c.layers + 1 - n)];
    out[str("states.", n)] = x;
    out[str("states.", n, ".normed")] = normed(x);
  }
  out["pooled"] = normed(row_at(states.back(), end));
  if (c.projection > 0)
    out["projected"] =
        nn::linear(root / "text_projection", out["pooled"], c.projection, {.bias = false});
  return out;
}

Value embedded(const Params& root, const ClipTextConfig& c, Value tokens) {
  const Params p = root / "text_model" / "embeddings" / "token_embedding";
  const AtScope at = p.enter();
  return ops::embedding(nn::clip_table(p, c.vocabulary, c.width), tokens);
}

// ---- entry points --------------------------------------------------------------------------

nn::Condition tokens(const ClipTextConfig& c) {
  return {
      .name = "tokens", .dtype = DType::i64, .shape = {nn::Condition::any}, .ids = c.vocabulary};
}
nn::Condition end_token(const ClipTextConfig& c) {
  return {.name = "end", .dtype = DType::i64, .ids = c.positions};
}

std::vector<nn::Condition> embed_inputs(const ModelConfig& config) {
  return {tokens(config.as<ClipTextConfig>())};
}
ValuesByName embed(const Params& p, const ModelConfig& config, const ValuesByName& in) {
  return {{"embeddings", embedded(p, config.as<ClipTextConfig>(), in.at("tokens"))}};
}

std::vector<nn::Condition> encode_inputs(const ModelConfig& config) {
  const auto& c = config.as<ClipTextConfig>();
  return {tokens(c), end_token(c)};
}
ValuesByName encode(const Params& p, const ModelConfig& config, const ValuesByName& in) {
  const auto& c = config.as<ClipTextConfig>();
  return encoded(p, c, embedded(p, c, in.at("tokens")), in.at("end"));
}

std::vector<nn::Condition> encode_embeddings_inputs(const ModelConfig& config) {
  const auto& c = config.as<ClipTextConfig>();
  return {{.name = "embeddings", .shape = {nn::Condition::any, c.width}}, end_token(c)};
}
ValuesByName encode_embeddings(const Params& p, const ModelConfig& config, const ValuesByName& in) {
  return encoded(p, config.as<ClipTextConfig>(), in.at("embeddings"), in.at("end"));
}

// ---- files ---------------------------------------------------------------------------------

enum class Layout : uint8_t { hugging_face, without_text_model, open_clip };

std::optional<Layout> layout_of(const Names& n) {
  if (n.has("text_model.encoder.layers.0.mlp.fc1.weight")) return Layout::hugging_face;
  if (n.has("encoder.layers.0.mlp.fc1.weight") && n.has("embeddings.token_embedding.weight"))
    return Layout::without_text_model;
  if (n.has("transformer.resblocks.0.mlp.c_fc.weight") && n.has("token_embedding.weight"))
    return Layout::open_clip;
  return {};
}

constexpr std::string_view text_model = "text_model.";

nn::FilePlace without_text_model(const std::string& weight) {
  const bool inside = weight.starts_with(text_model);
  return {.name = inside ? weight.substr(text_model.size()) : weight};
}

// OpenCLIP has q, k and v in one tensor, and the projection as [I,O].
nn::FilePlace open_clip(const std::string& weight) {
  if (weight == "text_projection.weight") return {.name = "text_projection", .transposed = true};
  std::string name = without_text_model(weight).name;
  const auto swap = [&](std::string_view from, std::string_view to) {
    const size_t at = name.find(from);
    if (at == std::string::npos) return false;
    name.replace(at, from.size(), to);
    return true;
  };
  if (swap("embeddings.token_embedding.", "token_embedding.") ||
      swap("embeddings.position_embedding.weight", "positional_embedding") ||
      swap("final_layer_norm.", "ln_final."))
    return {.name = name};
  swap("encoder.layers.", "transformer.resblocks.");
  if (swap("layer_norm1.", "ln_1.") || swap("layer_norm2.", "ln_2.") ||
      swap("mlp.fc1.", "mlp.c_fc.") || swap("mlp.fc2.", "mlp.c_proj.") ||
      swap("self_attn.out_proj.", "attn.out_proj."))
    return {.name = name};
  constexpr std::array qkv = {"self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj."};
  int64_t part = 0;
  while (part < 3 && !swap(qkv[static_cast<size_t>(part)], "attn.in_proj_")) ++part;
  return {.name = name, .part = part, .parts = 3};
}

nn::FilePlaces places(const ModelConfig&, const nn::FileShapes& t) {
  const auto layout = layout_of(Names{t});
  if (layout == Layout::open_clip) return open_clip;
  if (layout == Layout::without_text_model) return without_text_model;
  return {};
}

// Heads and the activation leave no trace in shapes. CLIP's heads are 64 wide; OpenAI's is the one
// with 768 channels.
std::optional<ModelConfig> recognise(const nn::FileShapes& t) {
  const Names n{t};
  const auto layout = layout_of(n);
  if (!layout) return {};
  ClipTextConfig c;
  if (layout == Layout::open_clip) {
    c.vocabulary = n.size("token_embedding.weight", 0);
    c.width = n.size("token_embedding.weight", 1);
    c.positions = n.size("positional_embedding", 0);
    c.layers = n.count("transformer.resblocks.", ".mlp.c_fc.weight");
    c.hidden = n.size("transformer.resblocks.0.mlp.c_fc.weight", 0);
    c.projection = n.size("text_projection", 1);
  } else {
    const std::string p(layout == Layout::hugging_face ? text_model : "");
    c.vocabulary = n.size(p + "embeddings.token_embedding.weight", 0);
    c.width = n.size(p + "embeddings.token_embedding.weight", 1);
    c.positions = n.size(p + "embeddings.position_embedding.weight", 0);
    c.layers = n.count(p + "encoder.layers.", ".mlp.fc1.weight");
    c.hidden = n.size(p + "encoder.layers.0.mlp.fc1.weight", 0);
    c.projection = n.size("text_projection.weight", 0);
  }
  c.heads = std::max<int64_t>(1, c.width / 64);
  c.activation = c.width == 1024 || c.width == 1280 ? "gelu" : "quick_gelu";
  return c;
}

std::string guessed(const ModelConfig& config) {
  const auto& c = config.as<ClipTextConfig>();
  for (const Preset& p : presets())
    if (p.config.as<ClipTextConfig>().width == c.width) return "";
  return str("heads ", c.heads, ", activation ", c.activation);
}

// Buffers, and what files of the whole of CLIP have beside.
bool ignored(std::string_view name) {
  return name.ends_with("position_ids") || name == "logit_scale" || name == "attn_mask" ||
         name.starts_with("vision_model.") || name.starts_with("visual.") ||
         name.starts_with("visual_projection.");
}

}  // namespace

const Model& clip_text() {
  static const Model m{.name = "clip_text",
                       .help = "CLIP's text encoder (Radford et al. 2021)",
                       .kind = ModelKind::text_encoder,
                       .presets = presets(),
                       .check = check,
                       .entries = {{"embed", "rows of the table of tokens", embed_inputs, embed},
                                   {"encode", "states of tokens", encode_inputs, encode},
                                   {"encode_embeddings", "states of embeddings",
                                    encode_embeddings_inputs, encode_embeddings}},
                       .recognise = recognise,
                       .places = places,
                       .guessed = guessed,
                       .ignored = ignored};
  return m;
}

}  // namespace ebb::models
