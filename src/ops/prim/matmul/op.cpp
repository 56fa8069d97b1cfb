#include "ops/prim/matmul/op.h"

#include "base/error.h"
#include "ops/prim/epilogue.h"
#include "ops/prim/matmul/examples.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"

namespace ebb::ops {

MatmulSizes matmul_sizes(const Signature& s) {
  const auto& attrs = s.as<Matmul>();
  const Shape &a = s.in[0].shape, &b = s.in[1].shape;
  MatmulSizes z;
  z.m = a[attrs.trans_a ? -1 : -2];
  z.k = a[attrs.trans_a ? -2 : -1];
  z.n = b[attrs.trans_b ? -2 : -1];
  z.repeat_a = a.rank() == 2 && b.rank() > 2;
  z.repeat_b = b.rank() == 2 && a.rank() > 2;
  z.lead = z.repeat_a ? b.slice(0, b.rank() - 2) : a.slice(0, a.rank() - 2);
  return z;
}

std::vector<Signature> added_products_of_matmul(const Signature& s) {
  if (s.as<Matmul>().products == 1) return {};
  Matmul one = s.as<Matmul>();
  one.products = 1;
  one.epilogue = {};
  one.dtype = {};
  std::vector<Signature> all;
  for (size_t k = 2; k < 2 * static_cast<size_t>(s.as<Matmul>().products); k += 2) {
    Signature m{s.op, one, {s.in[k], s.in[k + 1]}, {}, s.at};
    m.out = m.op->infer(m);
    all.push_back(std::move(m));
  }
  return all;
}

namespace {

Shape products_of(const Signature& s) {
  const MatmulSizes z = matmul_sizes(s);
  Shape all = z.lead;
  all.push_back(z.m);
  all.push_back(z.n);
  return all;
}

// For errors: text only where it is shown, as the rule runs for every node of every pass.
struct Operands {
  const Type &a, &b;
  const Matmul& attrs;
  const std::string& at;
};
std::ostream& operator<<(std::ostream& out, const Operands& o) {
  return out << "  a: " << o.a << (o.attrs.trans_a ? " transposed" : "") << "  b: " << o.b
             << (o.attrs.trans_b ? " transposed" : "") << "  at " << o.at;
}

// Rows times one matrix.
bool is_layer(const Signature& s) {
  return !s.as<Matmul>().trans_a && s.in.size() > 1 && s.in[1].shape.rank() == 2;
}

std::vector<Type> infer(const Signature& s) {
  const auto& attrs = s.as<Matmul>();
  require(attrs.products > 0 && std::ssize(s.in) >= 2 * attrs.products, "matmul: takes ",
          attrs.products, " pairs of a and b (got ", s.in.size(), " inputs)  at ", s.at);
  const Type &a = s.in[0], &b = s.in[1];
  const Operands operands{a, b, attrs, s.at};
  require(a.shape.rank() >= 2 && b.shape.rank() >= 2, "matmul: ranks must be at least 2 (",
          a.shape.rank(), " and ", b.shape.rank(), ")", operands);
  require(is_float(a.dtype) && (a.dtype == b.dtype || (a.dtype == DType::f32 && is_float(b.dtype))),
          "matmul: b must have a's float dtype, or be narrower than f32 (", a.dtype, " and ",
          b.dtype, ")", operands);
  const MatmulSizes z = matmul_sizes(s);
  const int64_t bk = b.shape[attrs.trans_b ? -1 : -2];
  require(z.k == bk && z.k > 0, "matmul: inner sizes must be equal and positive (", z.k, " and ",
          bk, ")", operands);
  require(z.repeat_a || z.repeat_b || z.lead == b.shape.slice(0, b.shape.rank() - 2),
          "matmul: leading dims must be equal, or a or b of rank 2", operands);
  Type out{attrs.dtype.value_or(a.dtype), z.lead};
  require(is_float(out.dtype), "matmul: dtype must be a float (", out.dtype, ")", operands);
  out.shape.push_back(z.m);
  out.shape.push_back(z.n);
  require(attrs.products == 1 || is_layer(s), "matmul: further products are of rows and one matrix",
          operands);
  for (const Signature& m : added_products_of_matmul(s))
    require(is_layer(m) && m.out[0] == Type{a.dtype, out.shape}, "matmul: all products must be ",
            out.shape, " of a's dtype (got ", m.out[0], ")", operands);
  std::vector<Type> results = epilogue_results(s, out.shape, out.dtype);
  if (!attrs.row_sums) return results;
  require(attrs.epilogue.is_sum() && attrs.products == 1, "matmul: sums are of one product alone",
          operands);
  require(out.shape.rank() == 2, "matmul: sums are of two matrices (ranks ", a.shape.rank(),
          " and ", b.shape.rank(), ")", operands);
  return {out, {DType::f32, {z.m}}};
}

std::vector<Value> products(Value a, Value b, const Matmul& attrs) {
  const Value in[] = {a, b};
  return a.graph->add(def::matmul(), attrs, in);
}

// The GEMM in `dtype`. Operands that differ in dtype follow `x`.
Value product(Value x, Value y, Matmul attrs, DType dtype) {
  attrs.dtype = dtype;
  return matmul(x, cast(y, x.dtype()), attrs);
}

// What the sums of a's rows add to the gradient of a.
Value with_row_sums(const VjpCall& c, Value da) {
  const Value ds = c.dout[1];
  if (!ds) return da;
  const int64_t m = ds.shape()[0];
  const Value rows = reshape(ds, c.sig.as<Matmul>().trans_a ? Shape{1, m} : Shape{m, 1});
  return map(
      {da, rows}, [](auto v) { return v[0] + v[1]; }, da.dtype());
}

// dc as a matrix for a shared matrix b, when the batch of a can be folded into its rows.
Value rows_of(Value v) { return reshape(v, {-1, v.shape()[-1]}); }

Value gradient_a(const VjpCall& c, Value dc) {
  const auto& t = c.sig.as<Matmul>();
  const Value a = c.in[0], b = cast(c.in[1], a.dtype());
  dc = cast(dc, a.dtype());
  const Value da =
      t.trans_a ? product(b, dc, {.trans_a = t.trans_b, .trans_b = true, .dtype = {}}, a.dtype())
                : product(dc, b, {.trans_a = false, .trans_b = !t.trans_b, .dtype = {}}, a.dtype());
  return cast(sum_to(da, a.shape()), a.dtype());
}

// The gradient of b and, with `sums`, the sums of dc over its rows.
std::vector<Value> gradient_b(const VjpCall& c, Value dc, bool row_sums) {
  const auto& t = c.sig.as<Matmul>();
  const Value b = c.in[1];
  Value a = c.in[0];
  dc = cast(dc, a.dtype());
  if (b.shape().rank() == 2 && a.shape().rank() > 2 && !t.trans_a) {
    a = rows_of(a);
    dc = rows_of(dc);
    if (a.shape()[0] == 0) return {constant(c.graph, 0, b.shape(), b.dtype())};
  }
  // of a weight: f32, as its master copy is
  const DType dtype = b.shape().rank() == 2 ? DType::f32 : b.dtype();
  Matmul attrs{.trans_a = t.trans_b || !t.trans_a,
               .trans_b = t.trans_b && t.trans_a,
               .dtype = dtype,
               .row_sums = row_sums};
  std::vector<Value> db = t.trans_b ? products(dc, cast(a, dc.dtype()), attrs)
                                    : products(a, cast(dc, a.dtype()), attrs);
  db[0] = cast(sum_to(db[0], b.shape()), dtype);
  return db;
}

// Whether the GEMM that is the gradient of b can bring the sums of dc along: it has the very
// values of dc as the operand whose rows they are.
bool fuses_row_sums(const VjpCall& c, Value dc) {
  const auto& t = c.sig.as<Matmul>();
  return t.trans_b && !t.trans_a && c.in[1].shape().rank() == 2 && dc.dtype() == c.in[0].dtype() &&
         dc.shape().numel() > 0;
}

std::vector<Value> vjp(const VjpCall& c) {
  const Summands e = summands_of(c.sig);
  const Value dc = c.dout[0] ? c.dout[0] : constant(c.graph, 0, c.out[0].shape(), c.out[0].dtype());
  const bool fused = e.bias && fuses_row_sums(c, dc);
  Value da = gradient_a(c, dc);
  if (c.sig.as<Matmul>().row_sums) da = with_row_sums(c, da);
  const std::vector<Value> db = gradient_b(c, dc, fused);
  std::vector<Value> out{da, db[0]};
  if (e.bias) out.push_back(fused ? db[1] : sum_to(dc, c.in[*e.bias].shape()));
  if (e.residual) out.push_back(residual_gradient(c.in[*e.residual], dc));
  return out;
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const auto& t = s.as<Matmul>();
  const MatmulSizes z = matmul_sizes(s);
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  RefArray products{products_of(s), {}};
  products.v.resize(at(products.shape.numel()));
  for (int64_t i = 0; i < products.shape.numel(); ++i) {
    const int64_t n = i % z.n, m = i / z.n % z.m, batch = i / (z.n * z.m);
    const int64_t a0 = z.repeat_a ? 0 : batch * z.m * z.k;
    const int64_t b0 = z.repeat_b ? 0 : batch * z.k * z.n;
    double sum = 0;
    for (int64_t k = 0; k < z.k; ++k)
      sum += in[0].v[at(a0 + (t.trans_a ? k * z.m + m : m * z.k + k))] *
             in[1].v[at(b0 + (t.trans_b ? n * z.k + k : k * z.n + n))];
    products.v[at(i)] = sum;
  }
  add_products(added_products_of_matmul(s), in, products);
  compute_epilogue(s, products, in, out);
  if (!t.row_sums) return;
  for (int64_t m = 0; m < z.m; ++m) {
    out[1].v[at(m)] = 0;
    for (int64_t k = 0; k < z.k; ++k)
      out[1].v[at(m)] += in[0].v[at(t.trans_a ? k * z.m + m : m * z.k + k)];
  }
}

// With operands of one dtype, without the sums, or with less of an epilogue.
std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  Matmul a = s.as<Matmul>();
  if (in[0].dtype() != in[1].dtype()) {
    std::vector<Value> wide(in.begin(), in.end());
    wide[1] = cast(in[1], in[0].dtype());
    return g.add(*s.op, a, wide);
  }
  if (!a.row_sums) {
    a.dtype = DType::f32;
    if (is_sum_of_one_product(s)) return without_last_operand(g, s, a, in);
    return product_after_product(g, s, added_products_of_matmul(s), in);
  }
  a.row_sums = false;
  const Value c = g.add(*s.op, a, in)[0];
  return {c, reshape(sum(in[0], {a.trans_a ? 0 : 1}), s.out[1].shape)};
}

Cost cost(const Signature& s) {
  const Shape products = products_of(s);
  Cost c = epilogue_cost(s, products);
  for (const Type& t : {s.in[0], s.in[1]}) c.bytes += static_cast<double>(t.bytes());
  c.flops += 2.0 * static_cast<double>(products.numel() * matmul_sizes(s).k);
  add_cost_of_products(added_products_of_matmul(s), c);
  if (s.as<Matmul>().row_sums) c.flops += static_cast<double>(s.in[0].shape.numel());
  return c;
}

std::optional<Attrs> with_epilogue(const Signature& s, const Epilogue& e, DType result,
                                   int64_t products) {
  Matmul a = s.as<Matmul>();
  if (a.row_sums && (products > 1 || !e.is_sum())) return {};
  if (products > 1 && !is_layer(s)) return {};
  a.products = products;
  a.epilogue = e;
  a.dtype = ResultDType::where_other(s.in[0].dtype, result);
  return a;
}

Contraction contraction(const Signature& s) {
  const auto& a = s.as<Matmul>();
  const bool plain = is_layer(s);
  return {.epilogue = a.epilogue,
          .products = a.products,
          .linear = plain && a.trans_b,
          .by_columns = plain && !a.trans_b,
          .with = with_epilogue};
}

}  // namespace

const OpDef& def::matmul() {
  static const OpDef d{.name = "matmul",
                       .attrs = +[] { return Attrs(Matmul{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .vjp = vjp,
                       .reference = reference,
                       .cost = cost,
                       .examples = matmul_examples,
                       .precision = OpDef::Precision::low,
                       .operands = 2,
                       .contraction = contraction,
                       .matrix_work = true};
  return d;
}

Value matmul(Value a, Value b, const Matmul& attrs) {
  return a.graph->add1(def::matmul(), attrs, {a, b});
}

Value linear(Value x, Value w, Value bias) {
  if (x.shape().rank() == 1)
    return reshape(linear(reshape(x, {1, x.shape()[0]}), w, bias), {w.shape()[0]});
  const Matmul attrs{.trans_a = false, .trans_b = true, .dtype = {}};
  if (!bias) return matmul(x, w, attrs);
  return x.graph->add1(def::matmul(), attrs, {x, w, bias});
}

}  // namespace ebb::ops
