#include "ops/group_norm/op.h"

#include "ops/prim/moments/affine.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) { return infer_norm(s, s.as<GroupNorm>().groups); }

std::vector<Value> decompose(Graph&, const Signature& s, std::span<const Value> in) {
  const auto& a = s.as<GroupNorm>();
  return {normalize(in, {.axis = 1, .groups = a.groups}, a.eps)};
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {
      {.label = "affine",
       .attrs = GroupNorm{4, 1e-5},
       .in = {f32({2, 5, 7, 12}), f32({12}), f32({12})}},
      {.label = "plain", .attrs = GroupNorm{3, 1e-6}, .in = {f32({2, 11, 9})}},
      {.label = "scale", .attrs = GroupNorm{1, 1e-5}, .in = {f32({3, 2, 3, 5}), f32({5})}},
      {.label = "channel_groups",
       .attrs = GroupNorm{6, 1e-5},
       .in = {f32({2, 4, 3, 6}), f32({6}), f32({6})}},
      {.label = "one_pixel",
       .attrs = GroupNorm{2, 1e-5},
       .in = {f32({2, 1, 1, 8}), f32({8}), f32({8})}},
      {.label = "image32",
       .attrs = GroupNorm{32, 1e-5},
       .in = {f32({32, 32, 32, 128}), f32({128}), f32({128})},
       .bench = true},
  };
}

}  // namespace

const OpDef& def::group_norm() {
  static const OpDef d{.name = "group_norm",
                       .attrs = +[] { return Attrs(GroupNorm{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .examples = examples};
  return d;
}

Value group_norm(Value x, Value gamma, Value beta, const GroupNorm& attrs) {
  return x.graph->add(def::group_norm(), attrs, norm_inputs(x, gamma, beta))[0];
}

}  // namespace ebb::ops
