#include "ops/prim/moments/affine.h"

#include "base/error.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::ops {

std::vector<Value> norm_inputs(Value x, Value gamma, Value beta) {
  require(gamma || !beta, "norm: beta needs gamma  x: ", x.type());
  std::vector<Value> in = {x};
  if (gamma) in.push_back(gamma);
  if (beta) in.push_back(beta);
  return in;
}

std::vector<Type> infer_norm(const Signature& s, int64_t groups) {
  require(!s.in.empty() && s.in.size() <= 3 && s.in[0].shape.rank() >= 2 && is_float(s.in[0].dtype),
          s.op->name, ": needs x [N,...,C], then gamma [C], then beta [C]  at ", s.at);
  const int64_t channels = s.in[0].shape[-1];
  require(groups > 0 && channels % groups == 0, s.op->name, ": channels (", channels,
          ") must be divisible by groups (", groups, ")  x: ", s.in[0], "  at ", s.at);
  for (size_t i = 1; i < s.in.size(); ++i)
    require(s.in[i].shape == Shape{channels}, s.op->name, ": gamma and beta must be [", channels,
            "] (got ", s.in[i], ")  x: ", s.in[0], "  at ", s.at);
  return {s.in[0]};
}

Value normalize(std::span<const Value> in, const Moments& over, double eps) {
  const Value x = in[0];
  const auto [mean, var] = moments(x, over);
  const Value rstd = map({var}, [eps](auto v) { return rsqrt(v[0] + eps); });
  const int64_t channels = x.shape()[-1];
  std::vector<Value> args = {x, expand_groups(mean, channels), expand_groups(rstd, channels)};
  args.insert(args.end(), in.begin() + 1, in.end());
  std::vector<Scalar> v;
  for (size_t i = 0; i < args.size(); ++i) v.push_back(Scalar::input(static_cast<int64_t>(i)));
  const Scalar scale = args.size() > 3 ? v[2] * v[3] : v[2];
  const Scalar shift = args.size() > 4 ? v[4] : Scalar(0.0);
  const Scalar result[] = {(v[0] - v[1]) * scale + shift};
  const Pointwise attrs{Expr(static_cast<int64_t>(args.size()), result), {}, x.dtype()};
  return pointwise(*x.graph, attrs, args)[0];
}

}  // namespace ebb::ops
