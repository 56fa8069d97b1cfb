// fuse_epilogues: which expressions fuse into matmuls and convolutions, and that results stay the
// same.
#include "passes/contractions/fuse_epilogues.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "ir/contraction.h"
#include "ops/add/op.h"
#include "ops/gelu/op.h"
#include "ops/gelu_tanh/op.h"
#include "ops/mse/op.h"
#include "ops/mul/op.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/moments/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/slice/op.h"
#include "ops/silu/op.h"
#include "ops/split/op.h"
#include "passes/gradients.h"
#include "passes/lower.h"
#include "passes/simplify.h"
#include "support/graphs.h"
#include "support/same_results.h"

namespace ebb::test::fuse_epilogues_test {
namespace {

Graph lowered(const Graph& g) { return common_subexpressions(in_primitives(g)); }

Graph pass(const Graph& g) {
  Graph out = fuse_epilogues(lowered(g), {.supports = serves_forms});
  verify(out, "epilogues");
  return out;
}

// The forms of epilogues that are expressions, in order.
std::vector<ops::EpilogueForm> fused_activations(const Graph& g) {
  std::vector<ops::EpilogueForm> all;
  for (const Node& n : g.nodes()) {
    if (n.op != &ops::def::matmul()) continue;
    const auto form = ops::epilogue_form(g.signature(n));
    if (form && form->kind != ops::EpilogueForm::Kind::sum) all.push_back(*form);
  }
  return all;
}

// A transformer's MLP: two layers, an activation between them.
struct Mlp {
  Graph g;
  Value x = g.input("x", f32({2, 3, 4}));
  Value w1 = g.source(Source::Kind::param, "w1", f32({6, 4}));
  Value b1 = g.source(Source::Kind::param, "b1", f32({6}));
  Value w2 = g.source(Source::Kind::param, "w2", f32({4, 6}));
};

TEST(fuse_epilogues, of_a_layer__is_the_layers_own_result) {
  Mlp m;
  m.g.output("y", ops::linear(ops::gelu_tanh(ops::linear(m.x, m.w1, m.b1)), m.w2));
  const Graph out = pass(m.g);
  ASSERT_EQ(fused_activations(out).size(), 1u);
  EXPECT_EQ(fused_activations(out)[0].kind, ops::EpilogueForm::Kind::activated);
  EXPECT_FALSE(fused_activations(out)[0].keeps);
  EXPECT_EQ(count(out, ops::def::pointwise()), 0);
  expect_equal(m.g, out);
}

TEST(fuse_epilogues, of_a_layer_that_others_read__keeps_the_layer_too) {
  Mlp m;
  const Value z = ops::linear(m.x, m.w1);
  m.g.output("z", z);
  m.g.output("y", ops::silu(z));
  const Graph out = pass(m.g);
  ASSERT_EQ(fused_activations(out).size(), 1u);
  EXPECT_TRUE(fused_activations(out)[0].keeps);
  expect_equal(m.g, out);
}

TEST(fuse_epilogues, gradients_of_an_mlp__fuse_the_activation_gradient) {
  Mlp m;
  const Value y = ops::linear(ops::gelu_tanh(ops::linear(m.x, m.w1, m.b1)), m.w2);
  m.g.output("loss", ops::mse(y, m.x));
  const std::string wrt[] = {"w1", "b1", "w2"};
  const Graph backward = gradients(m.g, "loss", wrt);
  const Graph out = pass(backward);
  ASSERT_EQ(fused_activations(out).size(), 2u);
  EXPECT_TRUE(fused_activations(out)[0].keeps);
  EXPECT_EQ(fused_activations(out)[1].kind, ops::EpilogueForm::Kind::activation_grad);
  expect_equal(backward, out);
}

// x [2,3,4] -> [2,3,3]: one half of a layer of 6 columns times an activation of the other.
Value gated_layer(Mlp& m, const std::function<Value(std::vector<Value>)>& gate) {
  return gate(ops::split(ops::linear(m.x, m.w1, m.b1), -1, 2));
}
Value geglu(std::vector<Value> half) { return half[0] * ops::gelu(half[1]); }
Value swiglu(std::vector<Value> half) { return ops::silu(half[0]) * half[1]; }

TEST(fuse_epilogues, gates_of_a_layer__are_the_layers_own_result) {
  for (const bool silu : {false, true}) {
    Mlp m;
    m.g.output("y", gated_layer(m, silu ? swiglu : geglu));
    const Graph out = pass(m.g);
    ASSERT_EQ(out.nodes().size(), 1u);
    const ops::EpilogueForm a = fused_activations(out).at(0);
    EXPECT_EQ(a.kind, ops::EpilogueForm::Kind::gated);
    EXPECT_FALSE(a.keeps);
    EXPECT_EQ(a.gate.of, silu ? 0u : 1u);
    EXPECT_EQ(a.gate.erf, !silu);
    expect_equal(m.g, out);
  }
}

TEST(fuse_epilogues, gates_that_an_expression_alone_reads__fuse_too) {
  Mlp m;
  const auto twice = [](auto v) { return v[0] * 2.0; };
  m.g.output("y", ops::map({gated_layer(m, geglu)}, twice));
  const Graph out = pass(m.g);
  ASSERT_EQ(fused_activations(out).size(), 1u);
  expect_equal(m.g, out);
}

TEST(fuse_epilogues, gates_in_training__keep_the_layer_for_its_gradient) {
  Mlp m;
  const Value y = gated_layer(m, geglu);
  m.g.output("loss", ops::mse(y, m.g.input("t", f32({2, 3, 3}))));
  const std::string wrt[] = {"w1", "b1"};
  const Graph backward = gradients(m.g, "loss", wrt);
  const Graph out = pass(backward);
  ASSERT_EQ(fused_activations(out).size(), 1u);
  EXPECT_TRUE(fused_activations(out)[0].keeps);
  expect_equal(backward, out);
}

TEST(fuse_epilogues, halves_of_two_layers__stay_apart) {
  Mlp m;
  const auto first = ops::split(ops::linear(m.x, m.w1, m.b1), -1, 2);
  const auto second = ops::split(ops::linear(m.x, m.w1), -1, 2);
  m.g.output("y", first[0] * ops::gelu(second[1]));
  EXPECT_TRUE(fused_activations(pass(m.g)).empty());
}

TEST(fuse_epilogues, gates_of_other_types_than_the_layer__stay) {
  Mlp repeated, rounded;
  const Scalar x[] = {Scalar::input(0), Scalar::input(1)}, y[] = {x[0] * (x[1] * sigmoid(x[1]))};
  const auto add = [&](Mlp& m, const Shape& shape, const ResultDTypes& dtype) {
    const auto half = ops::split(ops::linear(m.x, m.w1, m.b1), -1, 2);
    m.g.output("y", ops::pointwise(m.g, {Expr(2, y), shape.sizes(), dtype}, half)[0]);
    const Graph out = pass(m.g);
    EXPECT_TRUE(fused_activations(out).empty());
    expect_equal(m.g, out);
  };
  add(repeated, {5, 2, 3, 3}, {});
  add(rounded, {}, DType::bf16);
}

// Whatever kernels there are.
Graph pass_for_all(const Graph& g) {
  const auto all = [](const Signature&, const Signature&) { return true; };
  Graph out = fuse_epilogues(lowered(g), {.supports = all});
  verify(out, "epilogues");
  return out;
}

TEST(fuse_epilogues, half_of_a_row_that_is_as_wide_as_the_products__is_cut_before) {
  for (const int64_t begin : {0, 3}) {
    Mlp m;
    const auto half = ops::split(ops::linear(m.x, m.w1), -1, 2);
    const Value row = ops::slice(m.g.input("row", f32({2, 1, 6})), 2, begin, begin + 3);
    m.g.output("y", ops::map({half[0], half[1], row},
                             [](auto v) { return v[0] * sigmoid(v[0]) * v[1] * v[2]; }));
    const Graph out = pass_for_all(m.g);
    EXPECT_EQ(count(out, ops::def::pointwise()), 0);
    EXPECT_EQ(count(out, ops::def::slice()), begin == 0 ? 1 : 0);
    expect_equal(m.g, out);
  }
}

TEST(fuse_epilogues, products_of_another_dtype_than_the_expression__stay_apart) {
  for (const bool kept : {false, true}) {
    Mlp m;
    const Value z = ops::linear(m.x, m.w1);
    if (kept) m.g.output("z", z);
    m.g.output("y", ops::map(
                        {z}, [](auto v) { return v[0] * sigmoid(v[0]); }, DType::bf16));
    const Graph out = pass_for_all(m.g);
    EXPECT_EQ(count(out, ops::def::pointwise()), 1);
    expect_equal(m.g, out);
  }
}

TEST(fuse_epilogues, rows_of_a_layer__are_no_halves_of_columns) {
  Mlp m;
  const auto half = ops::split(ops::linear(m.x, m.w1, m.b1), 0, 2);
  m.g.output("y", half[0] * ops::gelu(half[1]));
  EXPECT_TRUE(fused_activations(pass(m.g)).empty());
}

TEST(fuse_epilogues, that_an_expression_alone_reads__stay_for_fuse) {
  Mlp m;
  const auto twice = [](auto v) { return v[0] * 2.0; };
  m.g.output("y", ops::map({ops::silu(ops::linear(m.x, m.w1))}, twice));
  EXPECT_TRUE(fused_activations(pass(m.g)).empty());
}

TEST(fuse_epilogues, without_a_supporting_kernel__do_not_fuse) {
  Mlp m;
  m.g.output("y", ops::silu(ops::linear(m.x, m.w1)));
  const Graph out = fuse_epilogues(lowered(m.g), {.supports = no_same_cost_class});
  EXPECT_TRUE(fused_activations(out).empty());
}

TEST(fuse_epilogues, of_a_wider_dtype_than_the_layer__stay_apart) {
  Graph g;
  const Value x = g.input("x", {DType::bf16, {3, 4}}), w = g.input("w", {DType::bf16, {6, 4}});
  const auto silu = [](auto v) { return v[0] * sigmoid(v[0]); };
  g.output("y", ops::map({ops::linear(x, w)}, silu, DType::f32));
  EXPECT_TRUE(fused_activations(pass(g)).empty());
}

// ---- residuals

// Uses of an op whose result has a residual.
int64_t with_residual(const Graph& g, const OpDef& op) {
  return std::count_if(g.nodes().begin(), g.nodes().end(), [&](const Node& n) {
    if (n.op != &op) return false;
    const auto form = ops::epilogue_form(g.signature(n));
    return form && form->kind == ops::EpilogueForm::Kind::sum && form->add.residual;
  });
}

Value squared(Value v) {
  return ops::map({v}, [](auto x) { return x[0] * x[0]; });
}

struct Layer {
  Graph g;
  Value x = g.input("x", f32({2, 4, 4, 3})), e = g.input("e", f32({2, 1, 1, 3}));
  Value w = g.input("w", f32({3, 3, 3, 3})), b = g.input("b", f32({3}));

  Value conv(Value v) { return ops::conv2d(v, w, b, {.pad = {1, 1, 1, 1}}); }
  // What a norm reads has to be in memory.
  void norm_of(Value v) {
    const auto m = ops::moments(v, {.axis = 1, .groups = 1});
    g.output("mean", m.mean);
    g.output("y", v);
  }
  Graph pass() { return fuse_epilogues(in_primitives(g), {.supports = serves_forms}); }
  int64_t added() { return with_residual(pass(), ops::def::conv2d()); }
};

TEST(fuse_epilogues, sum_of_a_convolution_and_its_input__is_added_by_the_convolution) {
  Layer l;
  l.norm_of(l.x + l.conv(l.x));
  const Graph out = l.pass();
  EXPECT_EQ(with_residual(out, ops::def::conv2d()), 1);
  EXPECT_EQ(count(out, ops::def::pointwise()), 0);
  const auto ramp = [](Shape s) {
    std::vector<double> v(static_cast<size_t>(s.numel()));
    for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(i % 7) - 3;
    return ref_array(std::move(s), v);
  };
  const RefInputs in = {{"x", ramp({2, 4, 4, 3})},
                        {"e", ramp({2, 1, 1, 3})},
                        {"w", ramp({3, 3, 3, 3})},
                        {"b", ramp({3})}};
  const auto before = evaluate_reference(l.g, in), after = evaluate_reference(out, in);
  EXPECT_EQ(output_of(out, after, "y").v, output_of(l.g, before, "y").v);
}

TEST(fuse_epilogues, row_for_each_image__is_added_by_the_convolution) {
  Layer l;
  l.norm_of(l.conv(l.x) + l.e);
  EXPECT_EQ(l.added(), 1);
}

TEST(fuse_epilogues, sum_of_three_matmuls__fuses_into_two_of_them) {
  Layer l;
  l.norm_of(l.conv(l.x) + l.conv(l.conv(l.x)) + l.conv(squared(l.x)));
  const Graph out = l.pass();
  EXPECT_EQ(with_residual(out, ops::def::conv2d()), 2);
  EXPECT_EQ(count(out, ops::def::conv2d()), 4);
}

TEST(fuse_epilogues, matmul_with_row_sums__keeps_both_results) {
  Graph g;
  const Value ab[] = {g.input("a", f32({4, 2})), g.input("b", f32({4, 3}))};
  const auto c = g.add(ops::def::matmul(), ops::Matmul{.trans_a = true, .row_sums = true}, ab);
  g.output("y", c[0] + g.input("x", f32({2, 3})));
  g.output("sums", squared(c[1]));
  const Graph out = fuse_epilogues(in_primitives(g), {.supports = serves_forms});
  EXPECT_EQ(with_residual(out, ops::def::matmul()), 0);
}

TEST(fuse_epilogues, matmul_with_other_readers__does_not_fuse_its_residual) {
  Layer l;
  const Value y = l.conv(l.x);
  l.g.output("product", y);
  l.norm_of(l.x + y);
  EXPECT_EQ(l.added(), 0);
}

TEST(fuse_epilogues, matmul_that_an_expression_names_and_does_not_use__counts_as_unread) {
  Layer l;
  const Value y = l.conv(l.x);
  l.norm_of(l.x + y);
  l.g.output("rest", ops::map({l.x, y}, [](auto v) { return v[0] * 2.0; }));
  EXPECT_EQ(l.added(), 1);
}

TEST(fuse_epilogues, expressions_on_either_side__take_the_sum_instead) {
  Layer before;
  before.norm_of(squared(before.x) + before.conv(before.x));
  EXPECT_EQ(before.added(), 0);
  Layer after;
  after.g.output("y", squared(after.x + after.conv(after.x)));
  EXPECT_EQ(after.added(), 0);
}

TEST(fuse_epilogues, without_a_supporting_kernel__the_residual_does_not_fuse) {
  Layer l;
  l.norm_of(l.x + l.conv(l.x));
  const Graph out = fuse_epilogues(in_primitives(l.g), {.supports = no_same_cost_class});
  EXPECT_EQ(with_residual(out, ops::def::conv2d()), 0);
}

TEST(fuse_epilogues, residual_that_is_wider__makes_the_result_wide) {
  Graph g;
  const Value x = g.input("x", {DType::bf16, {4, 8}}), w = g.input("w", {DType::bf16, {6, 8}});
  const Value sum = ops::linear(x, w) + g.input("r", f32({4, 6}));
  g.output("y", sum);
  const Graph out = fuse_epilogues(in_primitives(g), {.supports = serves_forms});
  EXPECT_EQ(with_residual(out, ops::def::matmul()), 1);
  EXPECT_EQ(out.type(out.outputs()[0].value), f32({4, 6}));
}

// ---- ops that the pass does not know

struct RowProducts {
  Epilogue epilogue = {};
  void fields(auto&& f) { f("epilogue", epilogue); }
};

// x [..., C] times w [..., C], element by element.
const OpDef& row_products() {
  static const OpDef d{
      .name = "row_products",
      .attrs = +[] { return Attrs(RowProducts{}); },
      .infer =
          +[](const Signature& s) {
            return ops::epilogue_results(s, s.in[0].shape, s.in[0].dtype);
          },
      .reference =
          +[](const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
            RefArray products = in[0];
            for (size_t i = 0; i < products.v.size(); ++i) products.v[i] *= in[1].v[i];
            ops::compute_epilogue(s, products, in, out);
          },
      .contraction =
          +[](const Signature& s) {
            return Contraction{
                .epilogue = s.as<RowProducts>().epilogue,
                .with = +[](const Signature&, const Epilogue& e, DType, int64_t products) {
                  return products == 1 ? std::optional<Attrs>(RowProducts{e}) : std::nullopt;
                }};
          }};
  return d;
}

// ---- further products ------------------------------------------------------------------------

// A layer, its adapter beside it.
struct Adapted {
  Graph g;
  Value x = g.input("x", f32({2, 3, 4}));
  Value whole(Value v, Value bias = {}) {
    return ops::linear(v, g.source(Source::Kind::param, "w", f32({4, 4})), bias);
  }
  Value beside(Value v, Value bias = {}) {
    const Value inner = ops::linear(v, g.source(Source::Kind::param, "a", f32({2, 4})));
    return ops::linear(inner, g.source(Source::Kind::param, "b", f32({4, 2})), bias);
  }
  Value bias(const std::string& name) { return g.source(Source::Kind::param, name, f32({4})); }
};

int64_t with_further_products(const Graph& g) {
  return std::ranges::count_if(g.nodes(), [](const Node& n) {
    return n.op == &ops::def::matmul() && n.attrs.as<ops::Matmul>().products > 1;
  });
}

TEST(fuse_epilogues, layer_and_its_adapter__are_one_node_with_what_follows) {
  Adapted m;
  m.g.output("y", m.x + (m.whole(m.x, m.bias("c")) + m.beside(m.x)));
  const Graph out = pass(m.g);
  ASSERT_EQ(out.nodes().size(), 2u);  // the first factor, and all else
  EXPECT_EQ(with_further_products(out), 1);
  EXPECT_EQ(out.nodes()[1].in.size(), 6u);  // two pairs, the bias, the residual
  expect_equal(m.g, out);
}

TEST(fuse_epilogues, gradient_of_a_layer_and_its_adapter__has_both_products_too) {
  Adapted m;
  const Value x = ops::silu(m.x * m.bias("scale"));
  m.g.output("loss", ops::mse(m.whole(x, m.bias("c")) + m.beside(x), m.x));
  const std::string wrt[] = {"scale"};
  const Graph backward = gradients(m.g, "loss", wrt), out = pass(backward);
  EXPECT_EQ(with_further_products(out), 2);
  expect_equal(backward, out);
}

TEST(fuse_epilogues, sum_with_a_residual__takes_a_further_product) {
  Adapted m;
  m.g.output("y", (m.x + m.beside(m.x)) + m.whole(m.x));
  const Graph out = pass(m.g);
  EXPECT_EQ(with_further_products(out), 1);
  EXPECT_EQ(out.nodes().size(), 2u);
  expect_equal(m.g, out);
}

TEST(fuse_epilogues, biases_of_two_layers_that_are_trained__are_not_added_up_in_each_step) {
  Adapted m;
  m.g.output("y", m.whole(m.x, m.bias("c")) + m.beside(m.x, m.bias("d")));
  EXPECT_EQ(with_further_products(pass(m.g)), 0);
}

TEST(fuse_epilogues, products_of_weights_stored_in_other_ways__stay_apart) {
  Adapted m;
  const Value other = m.g.source(Source::Kind::param, "v", f32({4, 4}));
  m.g.output("y", m.whole(m.x) + ops::matmul(m.x, other));
  EXPECT_EQ(with_further_products(pass(m.g)), 0);
}

TEST(fuse_epilogues, contraction_that_no_pass_knows__takes_what_its_kernels_serve) {
  Graph g;
  const Value x = g.input("x", f32({2, 3, 4}));
  const Value z = g.add1(row_products(), RowProducts{}, {x, g.input("w", f32({2, 3, 4}))});
  g.output("y", ops::silu(z + g.input("bias", f32({4}))));
  const Graph out = pass(g);
  ASSERT_EQ(out.nodes().size(), 1u);
  EXPECT_EQ(out.nodes()[0].op, &row_products());
  expect_equal(g, out);
}

TEST(fuse_epilogues, of_a_matmul_by_any_expression__are_offered_to_kernels) {
  Mlp m;
  m.g.output("y", ops::linear(ops::map({ops::linear(m.x, m.w1)}, [](auto v) { return tanh(v[0]); }),
                              m.w2));
  const Graph out = fuse_epilogues(lowered(m.g), {.supports = all_same_cost_class});
  ASSERT_EQ(out.nodes().size(), 2u);
  EXPECT_EQ(out.nodes()[0].attrs.as<ops::Matmul>().epilogue.expr,
            Expr(1, std::vector{tanh(Scalar::input(0))}));
  expect_equal(m.g, out);
}

}  // namespace
}  // namespace ebb::test::fuse_epilogues_test
