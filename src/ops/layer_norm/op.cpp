#include "ops/layer_norm/op.h"

#include "ops/prim/moments/affine.h"

namespace ebb::ops {
namespace {

std::vector<Value> decompose(Graph&, const Signature& s, std::span<const Value> in) {
  return {normalize(in, {.axis = in[0].shape().rank() - 1, .groups = 1}, s.as<LayerNorm>().eps)};
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {
      {.label = "affine", .attrs = LayerNorm{}, .in = {f32({2, 9, 37}), f32({37}), f32({37})}},
      {.label = "plain", .attrs = LayerNorm{1e-6}, .in = {f32({5, 24})}},
      {.label = "tokens", .attrs = LayerNorm{1e-6}, .in = {f32({16, 256, 384})}, .bench = true},
  };
}

}  // namespace

const OpDef& def::layer_norm() {
  static const OpDef d{.name = "layer_norm",
                       .attrs = +[] { return Attrs(LayerNorm{}); },
                       .infer = +[](const Signature& s) { return infer_norm(s, 1); },
                       .decompose = decompose,
                       .examples = examples,
                       .precision = OpDef::Precision::mixed};
  return d;
}

Value layer_norm(Value x, Value gamma, Value beta, const LayerNorm& attrs) {
  return x.graph->add(def::layer_norm(), attrs, norm_inputs(x, gamma, beta))[0];
}

}  // namespace ebb::ops
