#include "nn/ldm_unet.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace ebb::nn {
namespace {

// ---- blocks --------------------------------------------------------------------------------

Value res_block(const Params& p, const LdmUnet& c, Value x, int64_t out, Value emb) {
  const AtScope at = p.enter();
  const ops::GroupNorm norm{.groups = c.groups, .eps = 1e-5};
  Value h = ops::silu(group_norm(p / "in_layers" / 0, x, norm));
  h = conv(p / "in_layers" / 2, h, out);
  h = h + per_sample(linear(p / "emb_layers" / 1, emb, out), h);
  h = ops::silu(group_norm(p / "out_layers" / 0, h, norm));
  h = conv(p / "out_layers" / 3, h, out, {.init = zero_init});
  if (x.shape()[-1] != out) x = conv(p / "skip_connection", x, out, {.kernel = 1});
  return x + h;
}

// value * gelu(gate), with the GELU of the error function.
Value feed_forward(const Params& p, Value x) {
  const int64_t channels = x.shape()[-1], hidden = 4 * channels;
  const auto h = ops::split(linear(p / "net" / 0 / "proj", x, 2 * hidden), x.shape().rank() - 1, 2);
  return linear(p / "net" / 2, h[0] * ops::gelu(h[1]), channels);
}

// The part of image_mask() that is for features of these sides, [N,T].
Value mask_at(Value mask, Shape image, const Shape& sides) {
  int64_t before = 0;
  for (; image != sides; image = halved(image)) {
    require(image[0] > sides[0] || image[1] > sides[1],
            "ldm_unet: a mask of an image adapter has no part for features of ", sides, "  ",
            mask.type());
    before += image.numel();
  }
  return ops::slice(mask, 1, before, before + sides.numel());
}

// What the layer `layer` attends to beside the text, for features of these sides.
std::vector<KeysValues> images_of(const LdmSignals& s, int64_t layer, const Shape& sides) {
  if (s.images.empty()) return {};
  std::vector<KeysValues> out = s.images.at(static_cast<size_t>(layer));
  for (KeysValues& of : out)
    if (of.mask) of.mask = mask_at(of.mask, s.sides, sides);
  return out;
}

Value transformer_block(const Params& p, Value x, const LdmSignals& s, int64_t heads,
                        std::vector<KeysValues> images) {
  const AtScope at = p.enter();
  const int64_t channels = x.shape()[-1];
  const auto attended = [&](const char* name, Value attention) {
    return linear(p / name / "to_out" / 0, attention, channels);
  };
  x = x + attended("attn1", self_attention(p / "attn1", layer_norm(p / "norm1", x, {}),
                                           {.heads = heads,
                                            .qkv = {.bias = false},
                                            .names = {"to_q", "to_k", "to_v"}}));
  x = x + attended("attn2", cross_attention(p / "attn2", layer_norm(p / "norm2", x, {}), s.text,
                                            {.heads = heads, .more = std::move(images)}));
  return x + feed_forward(p / "ff", layer_norm(p / "norm3", x, {}));
}

// Transformer blocks, the first of which is the layer `layer` of image_layers().
struct Depth {
  int64_t blocks = 0, layer = 0;
};

// Of x [N,H,W,C], whose pixels are tokens.
Value transformer(const Params& p, const LdmUnet& c, Value x, Depth depth, const LdmSignals& to) {
  const AtScope at = p.enter();
  const Shape& s = x.shape();
  const int64_t channels = s[-1], heads = c.heads(channels);
  require(heads > 0 && channels % heads == 0 && channels == heads * (channels / heads) &&
              (c.num_head_channels == 0 || channels % c.num_head_channels == 0),
          "ldm_unet: heads must divide the channels (", heads, ", ", channels, ")  at ", p.path());
  const Linear projection{.file_dims = c.conv_projection ? 2 : 0};
  Linear last = projection;
  last.init = zero_init;
  Value h = group_norm(p / "norm", x, {.groups = c.groups, .eps = 1e-6});
  h = ops::reshape(linear(p / "proj_in", h, channels, projection), {s[0], s[1] * s[2], channels});
  for (int64_t i = 0; i < depth.blocks; ++i)
    h = transformer_block(p / "transformer_blocks" / i, h, to, heads,
                          images_of(to, depth.layer + i, {s[1], s[2]}));
  return x + ops::reshape(linear(p / "proj_out", h, channels, last), s);
}

// Residual block 0 of `p` and, with a depth, transformer 1.
Value stage(const Params& p, const LdmUnet& c, Value x, int64_t out, Depth depth,
            const LdmSignals& s) {
  x = res_block(p / 0, c, x, out, s.emb);
  return depth.blocks > 0 ? transformer(p / 1, c, x, depth, s) : x;
}

// To the size of `skip`, which is twice that of x or one less.
Value upsampled(const Params& p, Value x, Value skip) {
  const AtScope at = p.enter();
  const Shape &from = x.shape(), &to = skip.shape();
  const bool twice = to[1] == 2 * from[1] && to[2] == 2 * from[2];
  x = twice ? ops::upsample_nearest2(x)
            : ops::resample(x, {.kind = ops::ResampleKind::nearest, .size = {to[1], to[2]}});
  return conv(p / "conv", x, from[-1]);
}

// ---- conditions ----------------------------------------------------------------------------

Value zeros(Graph& g, const Shape& shape) { return ops::constant(g, 0, shape); }

// The scale w as [sin, cos] of 1000 (w - 1) (Meng et al. 2023, arXiv:2210.03142).
Value guidance_embedding(const LdmUnet& c, const NetworkInputs& in) {
  Value scale = in.condition(guidance_scale);
  if (!scale) scale = ops::constant(*in.x.graph, 1, {in.x.shape()[0]});
  const Value time = ops::map({scale}, [](auto v) { return (v[0] - 1.0) * 1000.0; });
  return ops::timestep_embedding(time, c.guidance_channels, {.cos_first = false, .endpoint = true});
}

// The pooled text and, behind it, the embedding of each size.
Value vector_of(const LdmUnet& c, const NetworkInputs& in) {
  const int64_t n = in.x.shape()[0];
  Graph& g = *in.x.graph;
  Value pooled = in.condition(pooled_text), sizes = in.condition(size_numbers);
  if (!pooled) pooled = zeros(g, {n, c.pooled()});
  if (c.sizes == 0) return pooled;
  if (!sizes) sizes = zeros(g, {n, c.sizes});
  const Value embedded =
      ops::timestep_embedding(ops::reshape(sizes, {n * c.sizes}), c.size_channels, {});
  return ops::concat({pooled, ops::reshape(embedded, {n, c.sizes * c.size_channels})}, 1);
}

// x with the image beside it.
Value widened(const LdmUnet& c, const NetworkInputs& in) {
  if (c.extra_channels == 0) return in.x;
  Shape shape = in.x.shape();
  shape[-1] = c.extra_channels;
  Value beside = in.condition(concat_image);
  if (!beside) beside = zeros(*in.x.graph, shape);
  require(beside.shape() == shape, "ldm_unet: ", concat_image, " must be ", shape,
          ", of the size of the noisy image  got ", beside.type());
  return ops::concat({in.x, beside}, 3);
}

}  // namespace

void check(const LdmUnet& c, std::string_view model, bool decoder) {
  const int64_t levels = c.levels(), blocks = c.num_res_blocks;
  require(levels > 0 && blocks > 0, model, ": needs levels (", levels, ") and residual blocks (",
          blocks, ")");
  const auto check_depths = [&](const char* what, const std::vector<int64_t>& depths,
                                int64_t count) {
    require(static_cast<int64_t>(depths.size()) == count, model, ": ", what,
            " must have one number a residual block (", depths.size(), ", not ", count, ")");
  };
  check_depths("input_depths", c.input_depths, levels * blocks);
  check_depths("output_depths", c.output_depths, decoder ? levels * (blocks + 1) : 0);
  require(c.middle_blocks <= 2 && (c.middle_depth == 0 || c.middle_blocks == 2), model,
          ": a transformer in the middle (", c.middle_depth, ") needs 2 residual blocks (",
          c.middle_blocks, ")");
  require(c.model_channels > 0 && c.model_channels % 2 == 0, model,
          ": model_channels must be even and at least 2 (got ", c.model_channels, ")");
  require(c.groups > 0, model, ": needs groups (", c.groups, ")");
  for (int64_t i = 0; i < levels; ++i)
    require(c.channels(i) > 0 && c.channels(i) % c.groups == 0, model, ": channels of a level (",
            c.channels(i), ") must divide by the groups of its norms (", c.groups, ")");
  require(c.context > 0, model, ": needs a context (", c.context, ")");
  require(c.num_heads > 0 || c.num_head_channels > 0, model, ": needs heads (", c.num_heads, ")");
  require(c.vector > 0 || c.sizes == 0, model, ": sizes (", c.sizes, ") are part of a vector (",
          c.vector, ")");
  require(c.vector == 0 || c.pooled() > 0, model, ": the vector (", c.vector,
          ") must have room for a pooled text beside the sizes (", c.sizes, " of ", c.size_channels,
          " channels)");
  require(c.sizes == 0 || (c.size_channels > 0 && c.size_channels % 2 == 0), model,
          ": size_channels must be even and at least 2 (got ", c.size_channels, ")");
  require(c.guidance_channels % 2 == 0 && c.guidance_channels != 2, model, ": guidance_channels (",
          c.guidance_channels, ") must be even, and more than 2");
}

std::vector<Condition> ldm_conditions(const LdmUnet& c, int64_t image_size) {
  constexpr int64_t tokens = 77, any = Condition::any;
  std::vector<Condition> out = {
      {.name = std::string(text_states), .shape = {any, c.context}, .usual = {tokens, c.context}}};
  if (c.vector > 0) out.push_back({.name = std::string(pooled_text), .shape = {c.pooled()}});
  if (c.sizes > 0) out.push_back({.name = std::string(size_numbers), .shape = {c.sizes}});
  if (c.guidance_channels > 0)
    out.push_back({.name = std::string(guidance_scale), .null = 1, .guided = false});
  // what an edit goes from is a condition, what inpainting keeps is not
  constexpr int64_t mask_and_image = 5;
  if (c.extra_channels > 0)
    out.push_back({.name = std::string(concat_image),
                   .shape = {any, any, c.extra_channels},
                   .usual = {image_size, image_size, c.extra_channels},
                   .guided = c.extra_channels != mask_and_image});
  return out;
}

std::string control_name(int64_t i) { return str("control.", i); }

std::vector<Condition> control_conditions(const LdmUnet& c) {
  std::vector<Condition> out;
  const auto add = [&](int64_t channels) {
    out.push_back({.name = control_name(static_cast<int64_t>(out.size())),
                   .shape = {Condition::any, Condition::any, channels},
                   .guided = false,
                   .rare = true});
  };
  if (c.levels() == 0) return {};
  add(c.model_channels);
  for (int64_t level = 0; level < c.levels(); ++level)
    for (int64_t i = level + 1 < c.levels() ? 0 : 1; i <= c.num_res_blocks; ++i)
      add(c.channels(level));
  add(c.channels(c.levels() - 1));
  return out;
}

std::string adapter_name(int64_t level) { return str("adapter.", level); }

std::vector<Condition> adapter_conditions(const LdmUnet& c) {
  std::vector<Condition> out;
  for (int64_t level = 0; level <= c.levels() && c.levels() > 0; ++level)
    out.push_back(
        {.name = adapter_name(level),
         .shape = {Condition::any, Condition::any, c.channels(std::min(level, c.levels() - 1))},
         .guided = false,
         .rare = true});
  return out;
}

std::string image_keys(int64_t layer) { return str("image_keys.", layer); }
std::string image_values(int64_t layer) { return str("image_values.", layer); }
std::string image_strength(int64_t layer) { return str("image_strength.", layer); }
bool of_image_adapter(std::string_view name) { return name.starts_with("image_"); }
std::string image_mask(int64_t adapter) { return str("image_mask.", adapter); }
Shape halved(const Shape& sides) { return {(sides[0] + 1) / 2, (sides[1] + 1) / 2}; }

std::vector<int64_t> image_layers(const LdmUnet& c) {
  std::vector<int64_t> out;
  const auto add = [&](int64_t depth, int64_t level) {
    out.insert(out.end(), static_cast<size_t>(depth), c.channels(level));
  };
  const auto inputs = static_cast<int64_t>(c.input_depths.size()),
             outputs = static_cast<int64_t>(c.output_depths.size());
  for (int64_t i = 0; i < inputs; ++i)
    add(c.input_depths[static_cast<size_t>(i)], i / c.num_res_blocks);
  for (int64_t i = 0; i < outputs; ++i)
    add(c.output_depths[static_cast<size_t>(i)], c.levels() - 1 - i / (c.num_res_blocks + 1));
  add(c.middle_depth, c.levels() - 1);
  return out;
}

// Throws Error where an adapter has other layers than the network.
static std::vector<std::vector<KeysValues>> images_of(const LdmUnet& c, const NetworkInputs& in) {
  std::vector<std::vector<KeysValues>> out;
  const auto layers = std::ssize(image_layers(c));
  const auto value = [&](const std::string& name, int64_t adapter) {
    return in.condition(str(name, '.', adapter));
  };
  for (int64_t adapter = 0; value(image_keys(0), adapter); ++adapter) {
    out.resize(static_cast<size_t>(layers));
    for (int64_t i = 0; i < layers; ++i) {
      const KeysValues of = {value(image_keys(i), adapter), value(image_values(i), adapter),
                             value(image_strength(i), adapter), in.condition(image_mask(adapter))};
      require(of.keys && of.values && of.strength, "ldm_unet: ", layers,
              " layers attend to text, and the image adapter ", adapter, " is for ", i);
      out[static_cast<size_t>(i)].push_back(of);
    }
    require(!value(image_keys(layers), adapter), "ldm_unet: ", layers,
            " layers attend to text, and the image adapter ", adapter, " is for more");
  }
  return out;
}

LdmSignals ldm_signals(const Params& p, const LdmUnet& c, const NetworkInputs& in, Value added) {
  const int64_t width = 4 * c.model_channels;
  const Params time = p / "time_embed", label = p / "label_emb" / 0;
  Value t = ops::timestep_embedding(in.noise, c.model_channels, {});
  if (c.guidance_channels > 0)
    t = t +
        linear(time / "cond_proj", guidance_embedding(c, in), c.model_channels, {.bias = false});
  Value e = silu_mlp({time / 0, time / 2, width}, t);
  if (c.vector > 0) e = e + silu_mlp({label / 0, label / 2, width}, vector_of(c, in));
  if (added) e = e + added;
  Value text = in.condition(text_states);
  if (!text) text = zeros(*in.x.graph, {in.x.shape()[0], 1, c.context});
  return {ops::silu(e), text, images_of(c, in), {in.x.shape()[1], in.x.shape()[2]}};
}

// With those of an adapter, where there are such.
static Value with_adapter(Value x, const NetworkInputs& in, int64_t level) {
  const Value features = in.condition(adapter_name(level));
  if (!features) return x;
  require(features.shape() == x.shape(), "ldm_unet: features ", level, " of an adapter must be ",
          x.shape(), "  got ", features.type());
  return x + features;
}

LdmFeatures ldm_encoder(const Params& p, const LdmUnet& c, const NetworkInputs& in,
                        const LdmSignals& s, Value hint) {
  const Params blocks = p / "input_blocks", m = p / "middle_block";
  Value x = conv(blocks / 0 / 0, widened(c, in), c.model_channels);
  if (hint) x = x + hint;
  std::vector<Value> skips = {x};
  auto depth = c.input_depths.begin();
  int64_t layer = 0;
  for (int64_t level = 0; level < c.levels(); ++level) {
    const bool last = level + 1 == c.levels(),
               attends =
                   std::any_of(depth, depth + c.num_res_blocks, [](int64_t d) { return d > 0; });
    for (int64_t i = 0; i < c.num_res_blocks; ++i) {
      x = stage(blocks / static_cast<int64_t>(skips.size()), c, x, c.channels(level),
                {*depth, layer}, s);
      layer += *depth++;
      if (i + 1 == c.num_res_blocks && (attends || last)) x = with_adapter(x, in, level);
      skips.push_back(x);
    }
    if (last) break;
    const Params down = blocks / static_cast<int64_t>(skips.size()) / 0;
    x = conv(down / "op", x, x.shape()[-1], {.stride = 2});
    if (!attends) x = with_adapter(x, in, level);
    skips.push_back(x);
  }
  layer = std::accumulate(c.output_depths.begin(), c.output_depths.end(), layer);
  if (c.middle_blocks > 0) x = stage(m, c, x, x.shape()[-1], {c.middle_depth, layer}, s);
  if (c.middle_blocks > 1)
    x = res_block(m / (c.middle_depth > 0 ? 2 : 1), c, x, x.shape()[-1], s.emb);
  x = with_adapter(x, in, c.levels());
  return {x, skips};
}

LdmFeatures with_control(LdmFeatures f, const NetworkInputs& in) {
  const auto add = [&](Value& features, size_t i) {
    const Value r = in.condition(control_name(static_cast<int64_t>(i)));
    if (!r) return;
    require(r.shape() == features.shape(), "ldm_unet: control residual ", i, " must be ",
            features.shape(), "  got ", r.type());
    features = features + r;
  };
  for (size_t i = 0; i < f.skips.size(); ++i) add(f.skips[i], i);
  add(f.middle, f.skips.size());
  return f;
}

Value ldm_decoder(const Params& p, const LdmUnet& c, LdmFeatures f, const LdmSignals& s) {
  Value x = f.middle;
  auto depth = c.output_depths.begin();
  int64_t block = 0,
          layer = std::accumulate(c.input_depths.begin(), c.input_depths.end(), int64_t{0});
  for (int64_t level = c.levels(); level-- > 0;)
    for (int64_t i = 0; i <= c.num_res_blocks; ++i, ++depth) {
      const Params q = p / "output_blocks" / block++;
      x = stage(q, c, ops::concat({x, f.skips.back()}, 3), c.channels(level), {*depth, layer}, s);
      layer += *depth;
      f.skips.pop_back();
      if (level > 0 && i == c.num_res_blocks)
        x = upsampled(q / (*depth > 0 ? 2 : 1), x, f.skips.back());
    }
  return x;
}

}  // namespace ebb::nn
