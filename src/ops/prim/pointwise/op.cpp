#include "ops/prim/pointwise/op.h"

#include "base/error.h"
#include "ir/loop_form.h"

namespace ebb::ops {

namespace {

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<Pointwise>();
  require(a.expr.inputs() == static_cast<int64_t>(s.in.size()), "pointwise: the expression takes ",
          a.expr.inputs(), " inputs (got ", s.in.size(), ")  at ", s.at);
  Shape shape(a.shape);
  DType widest = DType::f32;
  if (!s.in.empty()) {
    widest = infer_pointwise(s)[0].dtype;
    shape = broadcast(shape, infer_pointwise(s)[0].shape, "pointwise");
  }
  std::vector<Type> out;
  for (const DType d : a.dtypes.expanded(a.expr.results().size(), widest))
    out.push_back({d, shape});
  return out;
}

std::vector<Scalar> expr(const Signature& s, std::span<const Scalar> x) {
  return s.as<Pointwise>().expr.apply(x);
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const auto& expr = s.as<Pointwise>().expr;
  const Shape& shape = out[0].shape;
  std::vector<std::vector<int64_t>> strides;
  for (const RefArray& a : in) strides.push_back(broadcast_strides(a.shape, shape));
  const std::vector<int64_t> own = shape.strides();
  std::vector<double> x(in.size()), y(out.size());
  for (int64_t i = 0; i < shape.numel(); ++i) {
    for (size_t k = 0; k < in.size(); ++k) {
      int64_t at = 0, rest = i;
      for (size_t d = 0; d < own.size(); ++d) {
        at += rest / own[d] * strides[k][d];
        rest %= own[d];
      }
      x[k] = in[k].v[static_cast<size_t>(at)];
    }
    expr.evaluate(x, y);
    for (size_t k = 0; k < out.size(); ++k) out[k].v[static_cast<size_t>(i)] = y[k];
  }
}

std::optional<LoopForm> loop(const Signature& s) {
  return LoopForm{.space = s.out[0].shape,
                  .write = +[](const Signature& use, std::span<const Scalar> x, LoopReductions&) {
                    return use.as<Pointwise>().expr.apply(x);
                  }};
}

Cost cost(const Signature& s) {
  Cost c;
  for (const Type& t : s.in) c.bytes += static_cast<double>(t.bytes());
  for (const Type& t : s.out) c.bytes += static_cast<double>(t.bytes());
  c.flops = s.as<Pointwise>().expr.flops() * static_cast<double>(s.out[0].shape.numel());
  return c;
}

Expr example_expr() {
  const Scalar x = Scalar::input(0), y = Scalar::input(1);
  const Scalar results[] = {x * sigmoid(y), exp(x) - y};
  return Expr(2, results);
}

// The functions that no op of the library has for itself.
Expr other_functions() {
  const Scalar x = Scalar::input(0), y = Scalar::input(1);
  const Scalar results[] = {min(x, y),
                            max(x, y),
                            less(x, y) + floor(3.7 * x),
                            pow(abs(x) + 0.5, y),
                            rsqrt(abs(y) + 0.1),
                            select(less(y, x), x, -y)};
  return Expr(2, results);
}

std::vector<Example> examples() {
  const Pointwise p{example_expr()};
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {
      {.label = "same_shape", .attrs = p, .in = {f32({3, 5, 7}), f32({3, 5, 7})}},
      {.label = "channels", .attrs = p, .in = {f32({2, 5, 7, 13}), f32({13})}},
      {.label = "rows", .attrs = p, .in = {f32({2, 1, 1, 13}), f32({2, 5, 7, 1})}},
      {.label = "scalar", .attrs = p, .in = {f32({}), f32({4099})}},
      {.label = "coefficients", .attrs = p, .in = {f32({2, 6, 5, 24}), f32({2, 1, 1, 24})}},
      {.label = "group_coefficients", .attrs = p, .in = {f32({2, 9, 4, 6}), f32({2, 1, 4, 1})}},
      {.label = "other_functions",
       .attrs = Pointwise{other_functions()},
       .in = {f32({5, 67}), f32({5, 67})}},
      {.label = "empty", .attrs = p, .in = {f32({0, 3}), f32({3})}},
      {.label = "large", .attrs = p, .in = {f32({64, 64, 64, 64}), f32({64})}, .bench = true},
  };
}

}  // namespace

const OpDef& def::pointwise() {
  static const OpDef d{.name = "pointwise",
                       .attrs = +[] { return Attrs(Pointwise{}); },
                       .infer = infer,
                       .expr = expr,
                       .reference = reference,
                       .loop = loop,
                       .cost = cost,
                       .examples = examples,
                       .together = &pointwise_together};
  return d;
}

std::vector<Value> pointwise(Graph& g, const Pointwise& attrs, std::span<const Value> in) {
  return g.add(def::pointwise(), attrs, in);
}

Value map(std::initializer_list<Value> in, const std::function<Scalar(std::span<const Scalar>)>& f,
          ResultDType dtype) {
  std::vector<Scalar> x;
  for (size_t i = 0; i < in.size(); ++i) x.push_back(Scalar::input(static_cast<int64_t>(i)));
  const Scalar result[] = {f(x)};
  return pointwise(*in.begin()->graph, {Expr(static_cast<int64_t>(in.size()), result), {}, dtype},
                   std::span<const Value>(in.begin(), in.size()))[0];
}

Value cast(Value x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return map(
      {x}, [](auto v) { return v[0]; }, dtype);
}

Value broadcast_to(Value x, const Shape& shape) {
  if (x.shape() == shape) return x;
  require(broadcastable(x.shape(), shape), "broadcast_to: ", x.type(), " does not broadcast to ",
          shape);
  const Scalar result[] = {Scalar::input(0)};
  const Value in[] = {x};
  return pointwise(*x.graph, {Expr(1, result), shape.sizes(), x.dtype()}, in)[0];
}

Value constant(Graph& g, double value, const Shape& shape, DType dtype) {
  const Scalar result[] = {value};
  return pointwise(g, {Expr(0, result), shape.sizes(), dtype}, {})[0];
}

}  // namespace ebb::ops
