#include "nn/clip.h"

#include "base/error.h"
#include "ops/prim/literal/op.h"

namespace ebb::nn {
namespace {

constexpr Init normal02{Init::Kind::normal, 0.02};

Value attention(const Params& p, Value x, const ClipLayers& c) {
  const Value h = self_attention(
      p, x, {.heads = c.heads, .causal = c.causal, .names = {"q_proj", "k_proj", "v_proj"}});
  return linear(p / "out_proj", h, x.shape()[2]);
}

Value layer(const Params& p, Value x, const ClipLayers& c) {
  const AtScope at = p.enter();
  x = x + attention(p / "self_attn", layer_norm(p / "layer_norm1", x, {}), c);
  Value h = linear(p / "mlp" / "fc1", layer_norm(p / "layer_norm2", x, {}), c.hidden);
  h = c.activation == "gelu" ? ops::gelu(h) : quick_gelu(h);
  return x + linear(p / "mlp" / "fc2", h, x.shape()[2]);
}

}  // namespace

void check(const ClipLayers& c, int64_t width, std::string_view model) {
  require(c.heads > 0 && width > 0 && width % c.heads == 0, model, ": heads (", c.heads,
          ") must divide width (", width, ")");
  require(c.layers > 0 && c.hidden > 0, model, ": needs layers (", c.layers,
          ") and a hidden layer (", c.hidden, ")");
  require(c.activation == "quick_gelu" || c.activation == "gelu", model,
          ": activation must be quick_gelu or gelu ('", c.activation, "')");
}

Value quick_gelu(Value x) {
  return ops::map({x}, [](auto v) { return v[0] * sigmoid(1.702 * v[0]); });
}

Value clip_table(const Params& p, int64_t rows, int64_t width) {
  return p.param("weight", {rows, width}, normal02.weight(rows, width));
}

std::vector<Value> clip_states(const Params& p, Value x, const ClipLayers& c) {
  std::vector<Value> states = {x};
  for (int64_t i = 0; i < c.layers; ++i) states.push_back(layer(p / i, states.back(), c));
  return states;
}

Value with_vectors(Value tokens, Value rows, Value vectors) {
  Graph& g = *tokens.graph;
  const int64_t n = tokens.shape()[0], t = tokens.shape()[1], c = tokens.shape()[2];
  const Value none = ops::literal(g, std::vector<double>(static_cast<size_t>(c), 0.0), {1, c});
  const Value picked = ops::embedding(ops::concat({none, vectors}, 0), rows);
  const Value row = ops::reshape(ops::cast(rows, DType::f32), {n, t, 1});
  return ops::map({tokens, picked, row},
                  [](auto v) { return select(less(v[2], 0.5), v[0], v[1]); });
}

}  // namespace ebb::nn
