#include "ops/group_affine/op.h"

#include "base/error.h"
#include "ir/loop_form.h"
#include "ops/prim/moments/op.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<GroupAffine>();
  require(s.in.size() >= 2 && s.in.size() <= 4 && s.in[0] == s.in[1] && s.in[0].shape.rank() > 0,
          "group_affine: needs mean and var of one type, then gamma, then beta  at ", s.at);
  const int64_t groups = s.in[0].shape[-1];
  require(groups > 0 && a.channels % groups == 0, "group_affine: channels (", a.channels,
          ") must be a multiple of the groups (", groups, ")  at ", s.at);
  for (size_t i = 2; i < s.in.size(); ++i)
    require(s.in[i].shape == Shape{a.channels} && is_float(s.in[i].dtype),
            "group_affine: gamma and beta must be floats [", a.channels, "] (got ", s.in[i],
            ")  at ", s.at);
  Shape wide = s.in[0].shape;
  wide[-1] = a.channels;
  return std::vector<Type>(4, {DType::f32, wide});
}

std::vector<Value> decompose(Graph&, const Signature& s, std::span<const Value> in) {
  const auto& a = s.as<GroupAffine>();
  const double eps = a.eps;
  const Value small = map(
      {in[1]}, [eps](auto v) { return rsqrt(v[0] + eps); }, DType::f32);
  const auto wide = [&](Value v) {
    return broadcast_to(expand_groups(v, a.channels), s.out[0].shape);
  };
  const Value mean = wide(cast(in[0], DType::f32)), rstd = wide(small);
  const Value scale = in.size() > 2
                          ? map(
                                {rstd, in[2]}, [](auto v) { return v[0] * v[1]; }, DType::f32)
                          : rstd;
  const Value shift = in.size() > 3 ? map(
                                          {mean, scale, in[3]},
                                          [](auto v) { return v[2] - v[0] * v[1]; }, DType::f32)
                                    : map({mean, scale}, [](auto v) { return -(v[0] * v[1]); });
  return {scale, shift, mean, rstd};
}

std::optional<LoopForm> loop(const Signature& s) {
  return LoopForm{
      .space = s.out[0].shape,
      .groups = s.in[0].shape[-1],
      .inside = 2,
      .write = +[](const Signature& use, std::span<const Scalar> x, LoopReductions&) {
        const Scalar rstd = rsqrt(x[1] + use.as<GroupAffine>().eps);
        const Scalar scale = x.size() > 2 ? rstd * x[2] : rstd, moved = x[0] * scale;
        return std::vector<Scalar>{scale, x.size() > 3 ? x[3] - moved : -moved, x[0], rstd};
      }};
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  const Type one = f32({2, 1, 1, 3}), c = f32({12});
  const auto example = [](std::string label, GroupAffine a, std::vector<Type> in) {
    return Example{
        .label = std::move(label), .attrs = a, .in = std::move(in), .low = 0.1, .high = 2};
  };
  return {example("affine", {12, 1e-5}, {one, one, c, c}),
          example("scale", {12, 1e-5}, {one, one, c}), example("plain", {12, 1e-6}, {one, one}),
          example("one_group", {5, 1e-5}, {f32({3, 1}), f32({3, 1})}),
          example("rows", {640, 1e-5}, {f32({7, 32}), f32({7, 32}), f32({640}), f32({640})})};
}

}  // namespace

const OpDef& def::group_affine() {
  static const OpDef d{.name = "group_affine",
                       .attrs = +[] { return Attrs(GroupAffine{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .loop = loop,
                       .examples = examples};
  return d;
}

GroupAffineResults group_affine(Value mean, Value var, Value gamma, Value beta,
                                const GroupAffine& attrs) {
  std::vector<Value> in = {mean, var};
  if (gamma) in.push_back(gamma);
  if (beta) in.push_back(beta);
  const auto out = mean.graph->add(def::group_affine(), attrs, in);
  return {out[0], out[1], out[2], out[3]};
}

}  // namespace ebb::ops
