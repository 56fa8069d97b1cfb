#include "ops/prim/reduce/op.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ir/loop_form.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"

namespace ebb::ops {
namespace {

Shape iteration_shape(const Signature& s) {
  Shape shape(s.as<Reduce>().shape);
  for (const Type& t : s.in) shape = broadcast(shape, t.shape, "reduce");
  return shape;
}

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<Reduce>();
  require(a.expr.inputs() == static_cast<int64_t>(s.in.size()), "reduce: the expression takes ",
          a.expr.inputs(), " inputs (got ", s.in.size(), ")  at ", s.at);
  Shape shape = iteration_shape(s);
  for (const int64_t d : a.dims) {
    require(0 <= d && d < shape.rank(), "reduce: dim ", d, " is out of range (rank ", shape.rank(),
            ")  at ", s.at);
    shape[d] = 1;
  }
  std::vector<Type> out;
  for (const DType d : result_dtypes(a)) out.push_back({d, shape});
  return out;
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const auto& a = s.as<Reduce>();
  const Shape shape = iteration_shape(s);
  std::vector<std::vector<int64_t>> strides;
  for (const RefArray& x : in) strides.push_back(broadcast_strides(x.shape, shape));
  const auto to = broadcast_strides(out[0].shape, shape);
  const auto own = shape.strides();
  const bool sum = a.kind == ReduceKind::sum;
  for (RefArray& y : out) std::fill(y.v.begin(), y.v.end(), sum ? 0.0 : -INFINITY);
  std::vector<double> x(in.size()), y(out.size());
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const auto offset = [&](const std::vector<int64_t>& st) {
      int64_t at = 0, rest = i;
      for (size_t d = 0; d < own.size(); ++d) {
        at += rest / own[d] * st[d];
        rest %= own[d];
      }
      return static_cast<size_t>(at);
    };
    for (size_t k = 0; k < in.size(); ++k) x[k] = in[k].v[offset(strides[k])];
    a.expr.evaluate(x, y);
    for (size_t k = 0; k < out.size(); ++k) {
      double& v = out[k].v[offset(to)];
      v = sum ? v + a.scale * y[k] : std::max(v, y[k]);
    }
  }
}

std::vector<Value> vjp(const VjpCall& c) {
  const auto& a = c.sig.as<Reduce>();
  require(a.kind == ReduceKind::sum, "reduce: a maximum has no gradient here  at ", c.sig.at);
  const size_t n = c.in.size();
  std::vector<Value> in(c.in.begin(), c.in.end());
  std::vector<Scalar> x, weights;
  for (size_t i = 0; i < n; ++i) x.push_back(Scalar::input(static_cast<int64_t>(i)));
  for (const Value& dy : c.dout) {
    if (dy) in.push_back(dy);
    weights.push_back(dy ? Scalar::input(static_cast<int64_t>(in.size()) - 1) * Scalar(a.scale)
                         : Scalar(0.0));
  }
  const std::vector<Scalar> dx = a.expr.gradient(x, weights);
  std::vector<Value> out(n);
  for (size_t i = 0; i < n; ++i) {
    if (dx[i].is_constant(0)) continue;
    const Scalar result[] = {dx[i]};
    const Value full = pointwise(c.graph,
                                 {Expr(static_cast<int64_t>(in.size()), result),
                                  iteration_shape(c.sig).sizes(), c.in[i].dtype()},
                                 in)[0];
    out[i] = cast(sum_to(full, c.in[i].shape()), c.in[i].dtype());
  }
  return out;
}

std::optional<LoopForm> loop(const Signature& s) {
  const auto& a = s.as<Reduce>();
  if (a.dims.empty()) return {};
  Shape space(a.shape);
  for (const Type& t : s.in) space = broadcast(space, t.shape, "reduce");
  return LoopForm{
      .space = space,
      .dims = a.dims,
      .maximum = a.kind == ReduceKind::max,
      .scale = a.scale,
      .starts = true,
      .only_reduces = true,
      .write = +[](const Signature& use, std::span<const Scalar> x, LoopReductions& reductions) {
        std::vector<Scalar> y = use.as<Reduce>().expr.apply(x);
        for (Scalar& v : y) v = reductions.reduced(v);
        return y;
      }};
}

Cost cost(const Signature& s) {
  Cost c;
  for (const Type& t : s.in) c.bytes += static_cast<double>(t.bytes());
  for (const Type& t : s.out) c.bytes += static_cast<double>(t.bytes());
  c.flops = (s.as<Reduce>().expr.flops() + 1) * static_cast<double>(iteration_shape(s).numel());
  return c;
}

std::vector<Example> examples() {
  using enum ReduceKind;
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  const Scalar x = Scalar::input(0), y = Scalar::input(1);
  const Scalar one[] = {x}, two[] = {x * y, exp(x)};
  const Expr id(1, one), pair(2, two);
  return {
      {.label = "all", .attrs = Reduce{id, {0, 1}, sum}, .in = {f32({37, 53})}},
      {.label = "rows", .attrs = Reduce{id, {1}, sum, 0.5}, .in = {f32({37, 53})}},
      {.label = "columns", .attrs = Reduce{id, {0}, sum}, .in = {f32({537, 53})}},
      {.label = "long_row", .attrs = Reduce{id, {1}, sum}, .in = {f32({1, 30000})}},
      {.label = "long_columns", .attrs = Reduce{id, {0}, sum}, .in = {f32({1100, 24})}},
      {.label = "row_maximum", .attrs = Reduce{id, {2}, max}, .in = {f32({3, 7, 29})}},
      {.label = "groups", .attrs = Reduce{id, {1, 3}, sum}, .in = {f32({2, 35, 8, 3})}},
      {.label = "pair",
       .attrs = Reduce{pair, {1, 2}, sum},
       .in = {f32({2, 5, 7, 13}), f32({2, 1, 1, 13})}},
      {.label = "narrow_columns",
       .attrs = Reduce{pair, {0}, sum, 1, {}, {{DType::bf16, DType::f32}}},
       .in = {f32({41, 24}), f32({41, 24})}},
      {.label = "narrow_long_columns",
       .attrs = Reduce{id, {0}, sum, 0.5, {}, DType::f16},
       .in = {f32({1100, 24})}},
      {.label = "narrow_rows",
       .attrs = Reduce{id, {2}, max, 1, {}, DType::bf16},
       .in = {f32({3, 7, 29})}},
      {.label = "empty_rows", .attrs = Reduce{id, {1}, sum}, .in = {f32({3, 0})}},
      {.label = "empty", .attrs = Reduce{id, {0}, sum}, .in = {f32({0, 3})}},
      {.label = "spatial",
       .attrs = Reduce{pair, {1, 2}, sum},
       .in = {f32({32, 64, 64, 64}), f32({32, 64, 64, 64})},
       .bench = true},
  };
}

Value reduce_one(Value x, std::vector<int64_t> dims, Reduce attrs) {
  for (int64_t& d : dims) d = d < 0 ? d + x.shape().rank() : d;
  std::sort(dims.begin(), dims.end());
  const Scalar id[] = {Scalar::input(0)};
  attrs.expr = Expr(1, id);
  attrs.dims = std::move(dims);
  const Value in[] = {x};
  return reduce(*x.graph, attrs, in)[0];
}

}  // namespace

const OpDef& def::reduce() {
  static const OpDef d{.name = "reduce",
                       .attrs = +[] { return Attrs(Reduce{}); },
                       .infer = infer,
                       .vjp = vjp,
                       .reference = reference,
                       .loop = loop,
                       .cost = cost,
                       .examples = examples};
  return d;
}

std::vector<DType> result_dtypes(const Reduce& r) {
  return r.dtypes->expanded(r.expr.results().size(), DType::f32);
}

std::vector<Value> reduce(Graph& g, const Reduce& attrs, std::span<const Value> in) {
  return g.add(def::reduce(), attrs, in);
}

Value sum(Value x, std::vector<int64_t> dims) { return reduce_one(x, std::move(dims), {}); }

Value mean(Value x, std::vector<int64_t> dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= x.shape()[d];
  return reduce_one(x, std::move(dims),
                    {.scale = 1.0 / static_cast<double>(std::max<int64_t>(n, 1))});
}

Value amax(Value x, std::vector<int64_t> dims) {
  return reduce_one(x, std::move(dims), {.kind = ReduceKind::max});
}

Value sum_of(std::initializer_list<Value> in, std::vector<int64_t> dims,
             const std::function<Scalar(std::span<const Scalar>)>& f) {
  std::vector<Scalar> x;
  Shape shape;
  for (const Value& v : in) {
    x.push_back(Scalar::input(static_cast<int64_t>(x.size())));
    shape = broadcast(shape, v.shape(), "sum_of");
  }
  for (int64_t& d : dims) d = d < 0 ? d + shape.rank() : d;
  std::sort(dims.begin(), dims.end());
  const Scalar result[] = {f(x)};
  const Reduce attrs{Expr(static_cast<int64_t>(x.size()), result), std::move(dims)};
  return reduce(*in.begin()->graph, attrs, std::span<const Value>(in.begin(), in.size()))[0];
}

std::vector<int64_t> broadcast_dims(const Shape& from, const Shape& to) {
  std::vector<int64_t> dims;
  const int64_t lead = to.rank() - from.rank();
  for (int64_t d = 0; d < to.rank(); ++d)
    if (d < lead || (from[d - lead] == 1 && to[d] != 1)) dims.push_back(d);
  return dims;
}

Value sum_to(Value x, const Shape& shape) {
  std::vector<int64_t> dims = broadcast_dims(shape, x.shape());
  std::erase_if(dims, [&](int64_t d) { return x.shape()[d] == 1; });
  if (!dims.empty()) x = sum(x, dims);
  return x.shape() == shape ? x : reshape(x, shape);
}

}  // namespace ebb::ops
