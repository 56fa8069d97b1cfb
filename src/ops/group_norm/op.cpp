#include "ops/group_norm/op.h"

#include "ops/group_affine/op.h"
#include "ops/group_affine_grad/op.h"
#include "ops/prim/moments/affine.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) { return infer_norm(s, s.as<GroupNorm>().groups); }

// The statistics of x [N,...,C] and what they make of each channel, all [N,1...,C].
GroupAffineResults affine_of(const Signature& s, std::span<const Value> in) {
  const auto& a = s.as<GroupNorm>();
  const MeanVar stats = moments(in[0], {.axis = 1, .groups = a.groups});
  return group_affine(stats.mean, stats.var, in.size() > 1 ? in[1] : Value{},
                      in.size() > 2 ? in[2] : Value{}, {s.in[0].shape[-1], a.eps});
}

std::vector<Value> decompose(Graph&, const Signature& s, std::span<const Value> in) {
  const GroupAffineResults a = affine_of(s, in);
  return {map(
      {in[0], a.scale, a.shift}, [](auto v) { return v[0] * v[1] + v[2]; }, in[0].dtype())};
}

// Two sums over the pixels, then one expression; the statistics are those of the forward pass.
std::vector<Value> vjp(const VjpCall& c) {
  const Value x = c.in[0], dy = c.dout[0];
  const Shape& shape = c.sig.in[0].shape;
  const GroupAffineResults a = affine_of(c.sig, c.in);
  std::vector<int64_t> dims;
  for (int64_t d = 1; d < shape.rank() - 1; ++d) dims.push_back(d);
  const Value s1 = sum(dy, dims);
  const Value s2 = sum_of({dy, x, a.mean}, dims, [](auto v) { return v[0] * (v[1] - v[2]); });
  const int64_t pixels = shape.slice(1, shape.rank() - 1).numel();
  const auto g = group_affine_grad({.s1 = s1,
                                    .s2 = s2,
                                    .mean = a.mean,
                                    .rstd = a.rstd,
                                    .gamma = c.in.size() > 1 ? c.in[1] : Value{}},
                                   {c.sig.as<GroupNorm>().groups, pixels});
  std::vector<Value> out = {map(
      {dy, x, a.scale, g.slope, g.offset}, [](auto v) { return v[0] * v[2] + v[1] * v[3] + v[4]; },
      x.dtype())};
  if (c.in.size() > 1) out.push_back(g.dgamma);
  if (c.in.size() > 2) out.push_back(g.dbeta);
  return out;
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
                       .vjp = vjp,
                       .examples = examples,
                       .precision = OpDef::Precision::mixed};
  return d;
}

Value group_norm(Value x, Value gamma, Value beta, const GroupNorm& attrs) {
  return x.graph->add(def::group_norm(), attrs, norm_inputs(x, gamma, beta))[0];
}

}  // namespace ebb::ops
