#include "ops/prim/epilogue.h"

#include <algorithm>

#include "base/error.h"
#include "ir/normal_form.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/slice/op.h"

namespace ebb::ops {
namespace {

using ViewKind = EpilogueView::Kind;

Contraction contraction_of(const Signature& s) { return s.op->contraction(s); }

Shape with_columns(Shape s, int64_t columns) {
  s[-1] = columns;
  return s;
}

// The shape of the first result.
Shape result_of(const Signature& s, const Shape& products) {
  return with_columns(products, products[-1] / contraction_of(s).epilogue.parts);
}

ViewKind kind_of(const Signature& s, size_t input, const Shape& products) {
  const Type& t = s.in[input];
  require(is_float(t.dtype), s.op->name, ": further operands must be floats  input ", input, ": ",
          t, "  at ", s.at);
  if (t.shape.rank() == 1) return ViewKind::column;
  const int64_t width = t.shape.rank() == products.rank() ? t.shape[-1] : 0;
  if (t.shape == with_columns(products, width)) return ViewKind::element;
  require(t.shape == with_columns(row_for_each_image(products), width), s.op->name,
          ": further operands must be [", products[-1], "], ", row_for_each_image(products), " or ",
          products, "  input ", input, ": ", t, "  at ", s.at);
  return ViewKind::row;
}

size_t at(int64_t i) { return static_cast<size_t>(i); }

// The sum of all inputs.
Expr sum_of(int64_t inputs) {
  Scalar all = Scalar::input(0);
  for (int64_t i = 1; i < inputs; ++i) all = all + Scalar::input(i);
  return Expr(inputs, {&all, 1});
}

int64_t inputs_of(const std::vector<EpilogueView>& operands, int64_t parts) {
  for (const EpilogueView& o : operands) parts += o.parts;
  return parts;
}

}  // namespace

Shape row_for_each_image(Shape products) {
  for (int64_t d = 1; d + 1 < products.rank(); ++d) products[d] = 1;
  return products;
}

bool is_sum(const Expr& e) {
  const bool adds = std::ranges::all_of(e.code(), [](const Expr::Instruction& i) {
    return i.op == ScalarOp::add || i.op == ScalarOp::input;
  });
  return adds && e.results().size() == 1 && near(NormalForm(e), NormalForm(sum_of(e.inputs())));
}

bool is_product(const Expr& e) {
  const auto made_by = [&](ScalarOp op) {
    return std::ranges::count(e.code(), op, &Expr::Instruction::op);
  };
  return e.results().size() == 1 && e.inputs() == 2 && e.code().size() == 3 &&
         made_by(ScalarOp::input) == 2 && made_by(ScalarOp::mul) == 1;
}

bool sum_takes(std::span<const Type> operands, int64_t width) {
  const auto biases =
      std::ranges::count_if(operands, [](const Type& t) { return t.shape.rank() == 1; });
  return biases <= 1 && std::ssize(operands) - biases <= 1 &&
         std::ranges::all_of(operands, [&](const Type& t) { return t.shape[-1] == width; });
}

std::vector<EpilogueView> epilogue_views(const Signature& s, const Shape& products) {
  const Contraction c = contraction_of(s);
  const Epilogue& e = c.epilogue;
  const int64_t all = products[-1];
  require(e.parts > 0 && all % e.parts == 0, s.op->name, ": ", all, " columns have no ", e.parts,
          " equal parts  at ", s.at);
  const int64_t rows = products.numel() / std::max<int64_t>(1, all);
  std::vector<EpilogueView> out;
  for (size_t i = c.first_operand(); i < s.in.size(); ++i) {
    EpilogueView o{.input = i, .kind = kind_of(s, i, products)};
    const Type& t = s.in[i];
    const int64_t width = t.shape[-1];
    o.column = e.column(out.size());
    if (width == all && o.column == 0) o.parts = e.parts;
    const int64_t read = o.parts * (all / e.parts);
    // only an expression reads some of the columns
    const bool fits = o.column >= 0 && (e.is_sum() ? width == all : o.column + read <= width);
    if (o.kind == ViewKind::column)
      require(fits, s.op->name, ": bias must be floats [", all, "]  bias: ", t, "  at ", s.at);
    require(fits, s.op->name, ": operands must have ", read, " columns from ", o.column,
            " on  input ", i, ": ", t, "  at ", s.at);
    if (o.kind == ViewKind::column)
      o.rows = rows;
    else if (o.kind == ViewKind::row)
      o.rows = rows / std::max<int64_t>(1, t.shape.numel() / std::max<int64_t>(1, width));
    out.push_back(o);
  }
  return out;
}

std::vector<Type> epilogue_results(const Signature& s, const Shape& products, DType dtype) {
  const Epilogue e = contraction_of(s).epilogue;
  const std::vector<EpilogueView> operands = epilogue_views(s, products);
  std::vector<Type> out{{dtype, result_of(s, products)}};
  if (e.is_sum()) {
    const size_t first = contraction_of(s).first_operand();
    require(sum_takes(std::span(s.in).subspan(first), products[-1]), s.op->name,
            ": takes a bias and a residual (got ", s.in.size(), " inputs)  at ", s.at);
    return out;
  }
  const int64_t inputs = inputs_of(operands, e.parts);
  const auto results = static_cast<int64_t>(e.expr.results().size());
  require(e.expr.inputs() == inputs, s.op->name, ": the epilogue must be of ", inputs,
          " inputs (got ", e.expr.text(), ")  at ", s.at);
  require(results == 1 || results == 1 + e.parts, s.op->name, ": the epilogue must have 1 or ",
          1 + e.parts, " results (got ", e.expr.text(), ")  at ", s.at);
  if (e.keeps()) out.push_back({dtype, products});
  return out;
}

Expr epilogue_expression(const Signature& s, const Shape& products) {
  const Epilogue e = contraction_of(s).epilogue;
  return e.is_sum() ? sum_of(inputs_of(epilogue_views(s, products), 1)) : e.expr;
}

void compute_epilogue(const Signature& s, const RefArray& products, std::span<const RefArray> in,
                      std::span<RefArray> out) {
  const Epilogue e = contraction_of(s).epilogue;
  const std::vector<EpilogueView> operands = epilogue_views(s, products.shape);
  const Expr f = epilogue_expression(s, products.shape);
  const int64_t all = products.shape[-1], columns = all / e.parts;
  std::vector<double> x(at(f.inputs())), y(f.results().size());
  for (int64_t i = 0; i < out[0].shape.numel(); ++i) {
    const int64_t row = i / columns, column = i % columns;
    size_t k = 0;
    for (int64_t p = 0; p < e.parts; ++p) x[k++] = products.v[at(row * all + p * columns + column)];
    for (const EpilogueView& o : operands)
      for (int64_t p = 0; p < o.parts; ++p)
        x[k++] = in[o.input]
                     .v[at(row / o.rows * in[o.input].shape[-1] + o.column + p * columns + column)];
    f.evaluate(x, y);
    out[0].v[at(i)] = y[0];
    for (size_t p = 1; p < y.size(); ++p)
      out[1].v[at(row * all + column) + (p - 1) * at(columns)] = y[p];
  }
}

namespace {

std::vector<Value> epilogue_of_products(const Signature& s, Value products,
                                        std::span<const Value> in) {
  const Epilogue e = contraction_of(s).epilogue;
  const int64_t columns = products.shape()[-1] / e.parts;
  std::vector<Value> x;
  const auto add = [&](Value v, int64_t first, int64_t parts) {
    for (int64_t p = 0; p < parts; ++p, first += columns)
      x.push_back(v.shape()[-1] == columns ? v : slice(v, -1, first, first + columns));
  };
  add(products, 0, e.parts);
  for (const EpilogueView& o : epilogue_views(s, products.shape()))
    add(in[o.input], o.column, o.parts);
  const Expr f = epilogue_expression(s, products.shape());
  const std::vector<DType> dtypes(f.results().size(), s.out[0].dtype);
  std::vector<Value> y = pointwise(*products.graph, {f, s.out[0].shape.sizes(), dtypes}, x);
  if (e.parts > 1 && e.keeps())
    return {y[0], concat({y.begin() + 1, y.end()}, products.shape().rank() - 1)};
  return y;
}

}  // namespace

std::vector<Value> product_after_product(Graph& g, const Signature& s,
                                         std::span<const Signature> more,
                                         std::span<const Value> in) {
  const auto alone = [&](const Signature& m, size_t first) {
    const std::optional<Attrs> attrs = contraction_of(m).with(m, {}, DType::f32, 1);
    return g.add(*m.op, attrs.value(), in.subspan(first, 2))[0];
  };
  Value sum = alone(s, 0);
  size_t first = 2;
  for (const Signature& m : more) {
    sum = map({sum, alone(m, first)}, [](auto v) { return v[0] + v[1]; });
    first += 2;
  }
  return epilogue_of_products(s, sum, in);
}

void add_products(std::span<const Signature> more, std::span<const RefArray> in,
                  RefArray& products) {
  size_t first = 2;
  for (const Signature& m : more) {
    RefArray one{products.shape, std::vector<double>(products.v.size())};
    m.op->reference(m, in.subspan(first, 2), {&one, 1});
    for (size_t i = 0; i < one.v.size(); ++i) products.v[i] += one.v[i];
    first += 2;
  }
}

void add_cost_of_products(std::span<const Signature> more, Cost& c) {
  for (const Signature& m : more) {
    for (const Type& t : m.in) c.bytes += static_cast<double>(t.bytes());
    c.flops += cost_of(m).flops;
  }
}

Cost epilogue_cost(const Signature& s, const Shape& products) {
  Cost c;
  for (const Type& t : s.out) c.bytes += static_cast<double>(t.bytes());
  const Epilogue e = contraction_of(s).epilogue;
  const auto elements = static_cast<double>(s.out[0].shape.numel());
  double added = 0;
  for (const EpilogueView& o : epilogue_views(s, products)) {
    const Type& t = s.in[o.input];
    // some columns of a wider tensor are rows for images, which caches hold
    if (t.shape[-1] <= products[-1]) c.bytes += static_cast<double>(t.bytes());
    if (o.kind == ViewKind::column) added += static_cast<double>(o.parts);
  }
  // a bias costs nothing, as in a sum
  if (!e.is_sum()) c.flops += (e.expr.flops() - added) * elements;
  return c;
}

bool is_sum_of_one_product(const Signature& s) {
  const Contraction c = contraction_of(s);
  return c.products == 1 && c.epilogue.is_sum();
}

Summands summands_of(const Signature& s) {
  require(contraction_of(s).epilogue.is_sum(), s.op->name, ": has an epilogue that is no sum  ",
          s.text(), "  at ", s.at);
  Summands sum;
  for (const EpilogueView& o : epilogue_views(s, s.out[0].shape)) {
    if (o.kind == ViewKind::column) {
      sum.bias = o.input;
      continue;
    }
    sum.residual = o.input;
    sum.rows = o.kind == ViewKind::row ? o.rows : 1;
  }
  return sum;
}

bool is_sum_in(const Signature& s, DType dtype) {
  if (!is_sum_of_one_product(s)) return false;
  const Summands e = summands_of(s);
  for (size_t i = 0; i < s.in.size(); ++i)
    if (s.in[i].dtype != dtype && i != e.bias) return false;
  return s.out[0].dtype == dtype;
}

std::vector<Value> without_last_operand(Graph& g, const Signature& s, const Attrs& in_f32,
                                        std::span<const Value> in) {
  require(in.size() > contraction_of(s).first_operand(), s.op->name,
          ": this device has no kernel for it  ", s.text(), "  at ", s.at);
  const size_t last = in.size() - 1;
  const Value y = g.add(*s.op, in_f32, in.first(last))[0];
  return {map(
      {y, in[last]}, [](auto v) { return v[0] + v[1]; }, s.out[0].dtype)};
}

Value residual_gradient(Value residual, Value dy) {
  return cast(sum_to(dy, residual.shape()), residual.dtype());
}

}  // namespace ebb::ops
