#include "nn/layers.h"

#include "base/error.h"

namespace ebb::nn {
namespace {

struct LinearWeights {
  Value weight, bias;
};

// `qkv_interleave`: of q, k and v in files, as WeightSpec has it.
LinearWeights linear_weights(const Params& p, const Shape& shape, const Linear& a,
                             int64_t qkv_interleave = 1) {
  const int64_t out = shape[0], in = shape[1];
  WeightSpec spec = a.init.weight(in, out);
  spec.qkv_interleave = qkv_interleave;
  if (a.file_dims > 0) {
    spec.file_shape = {out, in};
    for (int64_t i = 0; i < a.file_dims; ++i) spec.file_shape.push_back(1);
  }
  const Value w = p.param("weight", shape, spec);
  if (!a.bias) return {w, {}};
  WeightSpec bias = a.init.bias(in);
  bias.qkv_interleave = qkv_interleave;
  return {w, p.param("bias", {out}, bias)};
}

// Of q, k and v: one weight [3C,C] and bias, or three of each put below each other.
LinearWeights qkv_weights(const Params& p, int64_t c, const SelfAttention& a) {
  if (a.names[0].empty()) {
    const int64_t qkv_interleave = a.order == QkvOrder::qkv_head_channel   ? 1
                                   : a.order == QkvOrder::head_qkv_channel ? a.heads
                                                                           : c;
    return linear_weights(p, {3 * c, c}, a.qkv, qkv_interleave);
  }
  std::vector<Value> weights, biases;
  for (const std::string_view name : a.names) {
    const LinearWeights one = linear_weights(p / name, {c, c}, a.qkv);
    weights.push_back(one.weight);
    biases.push_back(one.bias);
  }
  return {ops::concat(weights, 0), a.qkv.bias ? ops::concat(biases, 0) : Value{}};
}

}  // namespace

Value linear(const Params& p, Value x, int64_t out, const Linear& a) {
  const AtScope at = p.enter();
  const auto [w, b] = linear_weights(p, {out, x.shape()[-1]}, a);
  return ops::linear(x, w, b);
}

Value conv(const Params& p, Value x, int64_t out, const Conv& a) {
  if (a.kernel == 1 && a.stride == 1 && a.pad <= 0)
    return linear(p, x, out, {.bias = a.bias, .init = a.init, .file_dims = 2});
  const AtScope at = p.enter();
  const int64_t k = a.kernel, in = x.shape()[-1];
  const int64_t after = a.pad < 0 ? k / 2 : a.pad, before = a.pad_before < 0 ? after : a.pad_before;
  WeightSpec spec = a.init.weight(in * k * k, out * k * k);
  spec.channels_last = true;
  const Value w = p.param("weight", {out, k, k, in}, spec);
  Value b;
  if (a.bias) b = p.param("bias", {out}, a.init.bias(in * k * k));
  return ops::conv2d(x, w, b, {.stride = a.stride, .pad = {before, before, after, after}});
}

Value conv_up2(const Params& p, Value x, int64_t out, const Init& init) {
  const AtScope at = p.enter();
  const int64_t in = x.shape()[-1];
  // torch counts the second dim of the weight as the inputs of a transposed convolution.
  WeightSpec spec = init.weight(out * 4, in * 4);
  spec.channels_last = true;
  const Value w = p.param("weight", {in, 2, 2, out}, spec);
  const Value b = p.param("bias", {out}, init.bias(out * 4));
  return ops::conv_transpose2d(x, w, b, {.stride = 2});
}

Value pixel_unshuffle(Value x, int64_t k) {
  if (k == 1) return x;
  const Shape s = x.shape();
  require(s[1] % k == 0 && s[2] % k == 0, "pixel_unshuffle: sides must be multiples of ", k, "  ",
          s);
  const Value squares = ops::reshape(x, {s[0], s[1] / k, k, s[2] / k, k, s[3]});
  return ops::reshape(ops::permute(squares, {0, 1, 3, 5, 2, 4}),
                      {s[0], s[1] / k, s[2] / k, s[3] * k * k});
}

Value pixel_shuffle(Value x, int64_t k) {
  if (k == 1) return x;
  const Shape s = x.shape();
  const int64_t c = s[3] / (k * k);
  require(s[3] == c * k * k, "pixel_shuffle: channels must be a multiple of ", k * k, "  ", s);
  const Value squares = ops::reshape(x, {s[0], s[1], s[2], c, k, k});
  return ops::reshape(ops::permute(squares, {0, 1, 4, 2, 5, 3}), {s[0], s[1] * k, s[2] * k, c});
}

Value group_norm(const Params& p, Value x, const ops::GroupNorm& a) {
  const AtScope at = p.enter();
  const int64_t c = x.shape()[-1];
  const Value gamma = p.param("weight", {c}, {.init = "ones"});
  return ops::group_norm(x, gamma, p.param("bias", {c}), a);
}

Value layer_norm(const Params& p, Value x, const ops::LayerNorm& a) {
  const AtScope at = p.enter();
  const int64_t c = x.shape()[-1];
  const Value gamma = p.param("weight", {c}, {.init = "ones"});
  return ops::layer_norm(x, gamma, p.param("bias", {c}), a);
}

Value silu_mlp(const Mlp& a, Value x) {
  const Value h = ops::silu(linear(a.first, x, a.width, {.init = a.init}));
  return linear(a.second, h, a.width, {.init = a.init});
}

Value class_ids(const NetworkInputs& in) {
  if (const Value ids = in.condition(class_id)) return ops::cast(ids, DType::f32);
  return ops::constant(*in.x.graph, -1, {in.x.shape()[0]});
}

Value one_hot(Value ids, int64_t classes) {
  const Value id = ops::reshape(ids, {ids.shape()[0], 1});
  const Value row = ops::iota(*ids.graph, {.shape = {1, classes}, .dim = 1});
  return ops::map({id, row}, [](auto x) { return less(abs(x[0] - x[1]), 0.5); });
}

Value augmentation(const NetworkInputs& in, int64_t size) {
  const Value labels = in.condition(augment_labels);
  if (!labels) return ops::constant(*in.x.graph, 0, {in.x.shape()[0], size});
  require(labels.shape()[-1] == size, "augment: expected labels (", size, ")  ", labels.type());
  return labels;
}

Value class_embedding(const Params& p, Value ids, const ClassTable& a) {
  const AtScope at = p.enter();
  const Value table = p.param("weight", {a.rows, a.width}, a.init.weight(a.rows, a.width));
  if (a.null_row) {
    const auto last = static_cast<double>(a.rows - 1);
    ids =
        ops::map({ids}, [last](auto x) { return select(less(x[0], -0.5), last, min(x[0], last)); });
  }
  return ops::matmul(one_hot(ids, a.rows), table);
}

Value per_sample(Value v, Value x) {
  Shape shape{v.shape()[0]};
  for (int64_t i = 2; i < x.shape().rank(); ++i) shape.push_back(1);
  shape.push_back(v.shape()[1]);
  return ops::reshape(v, shape);
}

Value dropout(const Params& at, Value x, double p, const std::optional<ops::RandomKeys>& random) {
  if (!random || p <= 0) return x;
  const AtScope scope = at.enter();
  return ops::dropout(x, *random, {.p = p, .use = at.path() + ".dropout"});
}

Value self_attention(const Params& p, Value x, const SelfAttention& a) {
  const AtScope at = p.enter();
  const Shape& s = x.shape();
  const int64_t c = s[-1], heads = a.heads;
  require(heads > 0 && c % heads == 0, "attention: heads (", heads, ") must divide channels (", c,
          ")  x: ", x.type(), "  at ", p.path());
  const auto [w, b] = qkv_weights(p, c, a);
  const Value qkv = ops::linear(x, w, b);
  const Shape tokens{s[0], s.numel() / (s[0] * c), 3, heads, c / heads};
  return ops::reshape(ops::packed_attention(ops::reshape(qkv, tokens), {.causal = a.causal}), s);
}

Value cross_attention(const Params& p, Value x, Value context, const CrossAttention& a) {
  const AtScope at = p.enter();
  const Shape s = x.shape(), c = context.shape();
  const int64_t width = a.width > 0 ? a.width : s[-1], heads = a.heads;
  require(heads > 0 && width % heads == 0, "attention: heads (", heads, ") must divide the width (",
          width, ")  x: ", x.type(), "  at ", p.path());
  require(c.rank() == 3 && c[0] == s[0],
          "attention: the context must be [N,S,D] of as many samples (", s[0],
          ")  context: ", context.type(), "  at ", p.path());
  const auto by_heads = [&](Value y) {
    return ops::reshape(y, {s[0], y.shape().numel() / (s[0] * width), heads, width / heads});
  };
  const auto made = [&](Value v, const char* name) {
    return by_heads(linear(p / name, v, width, a.qkv));
  };
  const Value q = made(x, "to_q");
  Value o = ops::attention(q, made(context, "to_k"), made(context, "to_v"),
                           {.bias = a.bias, .key_lengths = a.key_lengths});
  for (const KeysValues& more : a.more) {
    for (const Value v : {more.keys, more.values})
      require(v.shape().rank() == 3 && v.shape()[0] == s[0] && v.shape()[2] == width,
              "attention: further keys and values must be [N,S,", width, "] of ", s[0],
              " samples  ", v.type(), "  at ", p.path());
    Value strength = ops::reshape(more.strength, {s[0], 1, 1, 1});
    if (more.mask) {
      const int64_t positions = q.shape()[1];
      require(more.mask.shape() == Shape({s[0], positions}), "attention: a mask must be [", s[0],
              ",", positions, "]  ", more.mask.type(), "  at ", p.path());
      strength = strength * ops::reshape(more.mask, {s[0], positions, 1, 1});
    }
    o = o + ops::attention(q, by_heads(more.keys), by_heads(more.values), {}) * strength;
  }
  Shape out = s;
  out[-1] = width;
  return ops::reshape(o, out);
}

}  // namespace ebb::nn
