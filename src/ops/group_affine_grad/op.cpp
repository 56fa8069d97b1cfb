#include "ops/group_affine_grad/op.h"

#include "base/error.h"
#include "ir/loop_form.h"
#include "ops/prim/moments/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<GroupAffineGrad>();
  require(s.in.size() == 4 || s.in.size() == 5,
          "group_affine_grad: needs s1, s2, mean, rstd and perhaps gamma  at ", s.at);
  for (size_t i = 0; i < 4; ++i)
    require(s.in[i].shape == s.in[0].shape && s.in[0].shape.rank() > 0,
            "group_affine_grad: sums and statistics must have one shape (", s.in[0].shape, ", ",
            s.in[i].shape, ")  at ", s.at);
  const int64_t channels = s.in[0].shape[-1];
  require(a.groups > 0 && channels % a.groups == 0 && a.pixels > 0, "group_affine_grad: channels (",
          channels, ") must be a multiple of the groups (", a.groups, "), pixels (", a.pixels,
          ") positive  at ", s.at);
  if (s.in.size() == 5)
    require(s.in[4].shape == Shape{channels}, "group_affine_grad: gamma must be [", channels,
            "] (got ", s.in[4], ")  at ", s.at);
  const Type wide{DType::f32, s.in[0].shape}, row{DType::f32, {channels}};
  return {wide, wide, row, row};
}

// 1 / elements of a group.
double inverse_of(const Signature& s) {
  const auto& a = s.as<GroupAffineGrad>();
  return static_cast<double>(a.groups) /
         (static_cast<double>(s.in[0].shape[-1]) * static_cast<double>(a.pixels));
}

std::vector<Value> decompose(Graph&, const Signature& s, std::span<const Value> in) {
  const auto& a = s.as<GroupAffineGrad>();
  const Shape& shape = s.in[0].shape;
  const int64_t channels = shape[-1], rows = channels == 0 ? 0 : shape.numel() / channels;
  const double inverse = inverse_of(s);
  const Value mean = in[2], rstd = in[3];
  Value u = in[0], w = in[1];
  const auto product = [](auto v) { return v[0] * v[1]; };
  if (in.size() == 5) {
    u = map({u, in[4]}, product, DType::f32);
    w = map({w, in[4]}, product, DType::f32);
  }
  u = expand_groups(group_sums(u, a.groups), channels);
  w = expand_groups(group_sums(w, a.groups), channels);
  const Value slope = map({w, rstd}, [=](auto v) { return v[0] * v[1] * v[1] * v[1] * -inverse; });
  const Value offset = map(
      {u, rstd, mean, slope}, [=](auto v) { return v[0] * v[1] * -inverse - v[2] * v[3]; },
      DType::f32);
  const Value dgamma =
      sum_of({reshape(in[1], {rows, channels}), reshape(rstd, {rows, channels})}, {0}, product);
  const Value dbeta = sum(reshape(in[0], {rows, channels}), {0});
  return {cast(slope, DType::f32), offset, reshape(dgamma, {channels}), reshape(dbeta, {channels})};
}

std::optional<LoopForm> loop(const Signature& s) {
  return LoopForm{
      .space = s.out[0].shape,
      .space_of = 0,
      .groups = s.as<GroupAffineGrad>().groups,
      .starts = true,
      .summed_over_images = {2, 3},
      .write = +[](const Signature& use, std::span<const Scalar> x, LoopReductions& reductions) {
        const double inverse = inverse_of(use);
        const Scalar &s1 = x[0], &s2 = x[1], &mean = x[2], &rstd = x[3];
        const Scalar gamma = x.size() > 4 ? x[4] : Scalar(1.0);
        const Scalar u = reductions.group_sum(s1 * gamma), w = reductions.group_sum(s2 * gamma);
        const Scalar slope = w * rstd * rstd * rstd * -inverse;
        return std::vector<Scalar>{slope, u * rstd * -inverse - mean * slope, s2 * rstd, s1};
      }};
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  const auto example = [&](std::string label, GroupAffineGrad a, Shape k, bool gamma) {
    Example e{.label = std::move(label), .attrs = a, .in = std::vector<Type>(4, f32(k))};
    if (gamma) e.in.push_back(f32({k[-1]}));
    e.low = 0.1;
    return e;
  };
  return {example("affine", {3, 35}, {2, 1, 1, 12}, true), example("plain", {4, 4}, {3, 8}, false),
          example("one_group", {1, 7}, {5, 1, 13}, true),
          example("wide", {32, 16}, {3, 1, 1, 640}, true),
          example("single_channels", {6, 5}, {2, 6}, true)};
}

}  // namespace

Value group_sums(Value v, int64_t groups) {
  Shape split = v.shape(), small = v.shape();
  split[-1] = groups;
  split.push_back(v.shape()[-1] / groups);
  small[-1] = groups;
  return reshape(sum(reshape(v, split), {-1}), small);
}

const OpDef& def::group_affine_grad() {
  static const OpDef d{.name = "group_affine_grad",
                       .attrs = +[] { return Attrs(GroupAffineGrad{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .loop = loop,
                       .examples = examples};
  return d;
}

GroupAffineGradResults group_affine_grad(const GroupAffineGradInputs& in,
                                         const GroupAffineGrad& attrs) {
  std::vector<Value> args = {in.s1, in.s2, in.mean, in.rstd};
  if (in.gamma) args.push_back(in.gamma);
  const auto out = in.s1.graph->add(def::group_affine_grad(), attrs, args);
  return {out[0], out[1], out[2], out[3]};
}

}  // namespace ebb::ops
