// Plans: compiling, fusing, memory and running on each backend.
#include "runtime/plan.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backends.h"
#include "base/random.h"
#include "ops/add/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/embedding/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/moments/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"
#include "ops/silu/op.h"
#include "passes/gradients.h"
#include "runtime/fit.h"
#include "support/far_device.h"
#include "support/files.h"

namespace ebb::plan_test {
namespace {

Tensor noise(Shape shape, uint64_t seed) {
  Tensor t(DType::f32, std::move(shape));
  const auto v = t.span<float>();
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = uniform_from(random_block({.seed = seed}, i)[0]) * 2 - 1;
  return t;
}

// loss = mean(silu(normalise(x) * gamma) * target), with group statistics
Graph norm_loss(Shape shape, int64_t groups) {
  Graph g;
  const Value x = g.input("x", {DType::f32, shape});
  const Value w = g.input("target", {DType::f32, shape});
  const Value gamma = g.source(Source::Kind::param, "gamma", {DType::f32, {shape[-1]}});
  const auto m = ops::moments(x, {1, groups});
  const Value rstd = ops::map({m.var}, [](auto v) { return rsqrt(v[0] + 1e-5); });
  const int64_t c = shape[-1];
  const Value y = ops::map({x, ops::expand_groups(m.mean, c), ops::expand_groups(rstd, c), gamma},
                           [](auto v) { return (v[0] - v[1]) * (v[2] * v[3]); });
  const Value z = ops::map({ops::silu(y), w}, [](auto v) { return v[0] * v[1]; });
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < shape.rank(); ++d) dims.push_back(d);
  const Value loss = ops::sum_to(ops::mean(z, dims), {});
  g.output("loss", loss);
  return g;
}

class PlanOn : public test::OnEachBackend {
 protected:
  const Context& context() const { return context_; }
};

float run_loss(Plan& p, const Tensor& x, const Tensor& w) {
  return p.run({{"x", x}, {"target", w}}).at("loss").span<float>()[0];
}

TEST_P(PlanOn, gradients_of_a_norm__equal_finite_differences) {
  for (const bool fuse : {false, true}) {
    const Shape shape{2, 5, 7, 12};
    const std::string wrt[] = {"x", "gamma"};
    const Graph g = gradients(norm_loss(shape, 4), "loss", wrt);
    Plan p(g, context(), {.fuse = fuse});
    const Tensor gamma = noise({12}, 3), w = noise(shape, 2);
    p.bind("gamma", gamma);
    const Tensor x = noise(shape, 1);
    const auto out = p.run({{"x", x}, {"target", w}});
    for (const auto& [name, tensor] : {std::pair{"grad.x", x}, std::pair{"grad.gamma", gamma}}) {
      const Tensor grad = out.at(name).clone();
      const auto v = tensor.span<float>();
      for (size_t i = 0; i < v.size(); i += 13) {
        const float keep = v[i], h = 1e-2f;
        const auto loss_at = [&](float value) {
          v[i] = value;
          p.bind("gamma", gamma);
          return run_loss(p, x, w);
        };
        const float up = loss_at(keep + h), down = loss_at(keep - h);
        v[i] = keep;
        EXPECT_NEAR(grad.span<float>()[i], (up - down) / (2 * h), 2e-5) << name << ' ' << i;
      }
    }
  }
}

TEST_P(PlanOn, fusing__leaves_few_passes_over_memory) {
  const std::string wrt[] = {"x", "gamma"};
  const Graph g = gradients(norm_loss({2, 16, 16, 32}, 4), "loss", wrt);

  const Graph lowered = lowered_for(g, *context().device);
  int large = 0;
  for (const Node& n : lowered.nodes()) {
    const Signature s = lowered.signature(n);
    for (const Type& t : s.in)
      if (t.shape.numel() == 2 * 16 * 16 * 32) {
        ++large;
        break;
      }
  }
  // moments, the loss, the sums for the statistics and gamma, dx
  EXPECT_LE(large, 4) << Plan(g, context()).text();
}

TEST_P(PlanOn, update__happens_in_place) {
  Graph g;
  const Type t{DType::f32, {1000}};
  const Value p = g.source(Source::Kind::param, "w", t);
  const Value m = g.source(Source::Kind::state, "m", t);
  const Value x = g.input("x", t);
  const Value m2 = ops::map({m, x}, [](auto v) { return v[0] * 0.9 + v[1]; });
  g.update("m", m2);
  g.update("w", ops::map({p, m2}, [](auto v) { return v[0] - v[1]; }));
  Plan plan(g, context());
  plan.bind_missing();
  Tensor ones(t);
  for (float& v : ones.span<float>()) v = 1;
  plan.run({{"x", ones}});
  plan.run({{"x", ones}});
  EXPECT_FLOAT_EQ(plan.fetch("m").span<float>()[999], 1.9f);
  EXPECT_FLOAT_EQ(plan.fetch("w").span<float>()[500], -2.9f);
  EXPECT_LT(plan.arena_bytes(), 100000);
  EXPECT_NE(plan.text().find("copies 0"), std::string::npos) << plan.text();
}

Tensor filled(const Type& t, float v) {
  Tensor out(t);
  for (float& x : out.span<float>()) x = v;
  return out;
}

// h2 takes h1's old value while h1 is written in place.
TEST_P(PlanOn, shift_register__keeps_the_old_value) {
  Graph g;
  const Type t{DType::f32, {5000}};
  const Value h1 = g.source(Source::Kind::state, "h1", t);
  g.source(Source::Kind::state, "h2", t);
  const Value x = g.input("x", t);
  g.update("h1", ops::map({h1, x}, [](auto v) { return v[0] * 0.5 + v[1]; }));
  g.update("h2", h1);
  Plan plan(g, context());
  plan.bind_missing();
  plan.run({{"x", filled(t, 1)}});
  plan.run({{"x", filled(t, 1)}});
  EXPECT_FLOAT_EQ(plan.fetch("h1").span<float>()[4999], 1.5f);
  EXPECT_FLOAT_EQ(plan.fetch("h2").span<float>()[4999], 1.0f);
}

TEST_P(PlanOn, two_states_from_one_value__both_get_it) {
  Graph g;
  const Type t{DType::f32, {300}};
  for (const char* name : {"a", "b", "c"}) g.source(Source::Kind::state, name, t);
  const Value x = g.input("x", t);
  const Value y = ops::map({x}, [](auto v) { return v[0] + 1.0; });
  g.update("a", y);
  g.update("b", y);
  g.update("c", x);
  Plan plan(g, context());
  plan.bind_missing();
  plan.run({{"x", filled(t, 2)}});
  for (const auto& [name, want] : {std::pair{"a", 3.0f}, {"b", 3.0f}, {"c", 2.0f}})
    EXPECT_EQ(plan.fetch(name).span<float>()[299], want) << name;
}

TEST_P(PlanOn, swapped_and_reshaped_states__take_the_old_values) {
  Graph g;
  const Value a = g.source(Source::Kind::state, "a", {DType::f32, {4, 100}});
  const Value b = g.source(Source::Kind::state, "b", {DType::f32, {400}});
  g.update("a", ops::reshape(b, {4, 100}));
  g.update("b", ops::reshape(a, {400}));
  Plan plan(g, context());
  plan.bind("a", filled({DType::f32, {4, 100}}, 1));
  plan.bind("b", filled({DType::f32, {400}}, 2));
  plan.run({});
  EXPECT_EQ(plan.fetch("a").span<float>()[7], 2.0f);
  EXPECT_EQ(plan.fetch("b").span<float>()[7], 1.0f);
}

TEST_P(PlanOn, output_of_an_updated_state__is_the_value_before) {
  Graph g;
  const Type t{DType::f32, {10}};
  const Value w = g.source(Source::Kind::state, "w", t);
  g.output("before", w);
  g.update("w", ops::map({w}, [](auto v) { return v[0] + 1.0; }));
  Plan plan(g, context());
  plan.bind_missing();
  EXPECT_EQ(plan.run({}).at("before").span<float>()[3], 0.0f);
  EXPECT_EQ(plan.run({}).at("before").span<float>()[3], 1.0f);
  EXPECT_EQ(plan.fetch("w").span<float>()[3], 2.0f);
}

TEST_P(PlanOn, missing_input__is_named) {
  Plan p(norm_loss({2, 3, 3, 4}, 2), context());
  p.bind_missing();
  testing::expect_error([&] { p.run({}); }, "input 'x' is missing");
}

// ---- tensors too large for 32-bit indices --------------------------------------------------

class LargeTensors : public test::OnEachBackend {};

// x[i, j, k] += a[i] + c[k], in memory that the device has twice over.
TEST_P(LargeTensors, broadcast_over_2_to_the_31_elements__reaches_them_all) {
  const Type type{DType::bf16, {33, 1 << 16, 1 << 10}};
  if (context_.device->free_memory() < 2 * type.bytes()) GTEST_SKIP() << "needs 9 GB";
  Graph g;
  const Value x = g.source(Source::Kind::state, "x", type);
  const Value a = g.input("a", {DType::f32, {33, 1, 1}}), c = g.input("c", {DType::f32, {1 << 10}});
  g.update("x", ops::map(
                    {x, a, c}, [](auto v) { return v[0] + v[1] + v[2]; }, DType::bf16));
  Plan add(g, context_);
  add.bind_missing();
  Tensor at(DType::f32, {33, 1, 1}), ct(DType::f32, {1 << 10});
  for (size_t i = 0; i < 33; ++i) at.span<float>()[i] = static_cast<float>(i);
  for (size_t k = 0; k < 1 << 10; ++k) ct.span<float>()[k] = static_cast<float>(k % 64);
  for (int run = 0; run < 2; ++run) add.run({{"a", at}, {"c", ct}});  // all sums have 8 bits

  Graph h;
  const Value y = h.source(Source::Kind::state, "x", type);
  const int64_t rows[] = {0, 15, 16, 17, 18, 31, 32};
  for (const int64_t i : rows)
    h.output(str("y", i), ops::slice(ops::slice(y, 0, i, i + 1), 1, (1 << 16) - 3, 1 << 16));
  Plan look(h, context_);
  look.bind("x", add.bound("x"));
  const NamedTensors out = look.run({});
  for (const int64_t i : rows) {
    const Tensor values = out.at(str("y", i)).to(DType::f32);
    for (int64_t n = 0; n < values.numel(); ++n)
      ASSERT_EQ(values.span<float>()[static_cast<size_t>(n)], static_cast<float>(2 * (i + n % 64)))
          << i << ' ' << n;
  }
}

INSTANTIATE_TEST_SUITE_P(cuda, LargeTensors, ::testing::ValuesIn(test::only("cuda")));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LargeTensors);

// ---- a device with memory of its own -------------------------------------------------------

using testing::FarDevice;

TEST(plan, recorded_on_a_far_device__is_one_launch_a_run) {
  const auto device = std::make_shared<FarDevice>();
  const Tensor x = noise({2, 3, 3, 4}, 1), w = noise({2, 3, 3, 4}, 2), gamma = noise({4}, 3);
  Plan far(norm_loss(x.shape(), 2), {.device = device});
  Plan near(norm_loss(x.shape(), 2), open_context("cpu"));
  for (Plan* p : {&far, &near}) p->bind("gamma", gamma);
  for (int run = 0; run < 3; ++run) EXPECT_EQ(run_loss(far, x, w), run_loss(near, x, w));
  EXPECT_EQ(device->captures, 1);
  EXPECT_EQ(device->launches, 3);
}

// What kernels rely on without asking.
TEST(plan, source_off_the_alignment__is_named) {
  const auto device = std::make_shared<FarDevice>();
  Plan p(norm_loss({2, 3, 3, 4}, 2), {.device = device});
  const Tensor memory({DType::f32, {8}}, device->allocate(32));
  p.bind("gamma", memory.rows(4, 8));
  p.bind_missing();
  p.load({{"x", noise({2, 3, 3, 4}, 1)}, {"target", noise({2, 3, 3, 4}, 2)}});
  p.bind("gamma", memory.rows(1, 5));
  testing::expect_error([&] { p.load({}); },
                        "plan: 'gamma' must lie at a multiple of 16 bytes (it lies 4 past one)");
}

TEST(plan, too_little_memory__says_what_it_needs_and_what_helps) {
  const Tensor x = noise({8, 16, 16, 64}, 1);                         // 524 kB
  for (const int64_t memory : {int64_t{600000}, int64_t{1050000}}) {  // for one input; for both
    const auto device = std::make_shared<FarDevice>(memory);
    testing::expect_error(
        [&] {
          Plan p(norm_loss(x.shape(), 2), {.device = device});
          p.bind("gamma", noise({64}, 2));
          p.run({{"x", x}, {"target", x}});
        },
        "plan: out of memory: a run needs ");
    EXPECT_EQ(device->free_memory(), memory);
  }
  const auto device = std::make_shared<FarDevice>(1050000);
  Plan p(norm_loss(x.shape(), 2), {.device = device});
  testing::expect_error(
      [&] {
        p.bind_missing();
        p.run({{"x", x}, {"target", x}});
      },
      "MB are free on a far device; a smaller --batch, --recompute auto or more --accumulation "
      "needs less");
}

TEST(advice_on_memory, names_bf16_where_products_are_of_f32) {
  const auto advice = [](DType dtype) {
    Graph g;
    const Value a = g.input("a", {dtype, {4, 6}}), b = g.input("b", {dtype, {6, 8}});
    g.output("y", ops::matmul(a, b));
    return advice_on_memory(g, true);
  };
  EXPECT_NE(advice(DType::f32).find("a smaller --batch, --dtype bf16 or"), std::string::npos);
  EXPECT_EQ(advice(DType::bf16).find("--dtype"), std::string::npos);
}

TEST(plan, check_memory__counts_what_is_not_there_yet) {
  const Tensor x = noise({8, 16, 16, 64}, 1);
  const Graph g = norm_loss(x.shape(), 2);
  const auto enough = std::make_shared<FarDevice>();
  const Plan p(g, {.device = enough});
  const int64_t need = p.arena_bytes() + p.source_bytes();
  Plan fits(g, {.device = std::make_shared<FarDevice>(need)});
  fits.check_memory();
  fits.bind_missing();
  fits.check_memory();
  const Plan small(g, {.device = std::make_shared<FarDevice>(need - 1)});
  testing::expect_error([&] { small.check_memory(); }, "plan: out of memory: a run needs ");
}

TEST(plan, made_to_be_looked_at__needs_no_memory) {
  const Plan p(norm_loss({64, 16, 16, 64}, 2), {.device = std::make_shared<FarDevice>(0)});
  EXPECT_GT(p.arena_bytes(), 0);
  EXPECT_NE(p.text().find("steps "), std::string::npos);
}

TEST(tensor, host_memory_that_cannot_be_had__says_how_much_was_asked_for_and_is_free) {
#ifdef EBB_SANITIZE
  GTEST_SKIP() << "the sanitizer ends the process";
#else
  testing::expect_error([] { Tensor(DType::f32, {int64_t{1} << 50}); },
                        "tensor: out of memory: 4503599628 MB are needed at once, ");
#endif
}

TEST(plan, tensor_too_large_for_the_kernels__says_so) {
  const auto device = std::make_shared<FarDevice>();
  device->kernels = "none";
  const auto plan_of = [&](int64_t n) {
    Graph g;
    g.output("y", ops::silu(g.input("x", {DType::f32, {n, 64}})));
    Plan p(g, {.device = device});
  };
  testing::expect_error([&] { plan_of(int64_t{1} << 25); },
                        "kernels support fewer than 2147483648 elements and this has 2147483648: a "
                        "smaller --batch");
  const std::string small = testing::error_of([&] { plan_of(2); });
  EXPECT_NE(small, "");
  EXPECT_EQ(small.find("--batch"), std::string::npos) << small;
}

// The first kernel of a plan fails when it is started, as a bad launch does.
TEST(plan, step_that_cannot_start__is_named_with_its_place_in_the_model) {
  Graph g;
  const Value table = g.source(Source::Kind::param, "table", {DType::f32, {3, 4}});
  {
    const AtScope at(g, "net.embed");
    g.output("y", ops::embedding(table, g.input("ids", {DType::i64, {2}})));
  }
  Plan p(g, open_context("cpu"));
  p.bind_missing();
  const int64_t ids[] = {1, 7};
  testing::expect_error(
      [&] {
        p.run({{"ids", tensor_of<int64_t>(ids, {2})}});
      },
      "embedding f32[3,4],i64[2]  at net.embed");
}

// ---- copies that move nothing ----------------------------------------------------------------

int64_t steps_in_place(const Plan& p) {
  return std::ranges::count_if(p.steps(), [](const Step& s) { return !s.program.run; });
}
CompileOptions unfused() { return {.fuse = false}; }
Value plus(Value a, Value b) {
  return ops::map({a, b}, [](auto v) { return v[0] + v[1]; });
}

TEST_P(PlanOn, ranges_of_memory__are_neither_joined_nor_sliced_by_copies) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {4, 64}});
  const Value a = ops::silu(x), b = plus(x, x);
  const Value joined = ops::concat({a, b}, 0);
  const Value rows = ops::slice(joined, 0, 3, 7);  // one of a, three of b
  g.output("joined", joined);
  g.output("sum", plus(rows, x));
  Plan p(g, context(), unfused());
  EXPECT_EQ(steps_in_place(p), 2) << p.text();
  const Tensor at = noise({4, 64}, 5);
  const NamedTensors out = p.run({{"x", at}});
  const auto v = at.span<float>(), y = out.at("joined").span<float>(),
             sum = out.at("sum").span<float>();
  for (size_t i = 0; i < 256; ++i) {
    EXPECT_NEAR(y[i], v[i] / (1 + std::exp(-v[i])), 1e-6);
    EXPECT_EQ(y[256 + i], v[i] + v[i]);
    EXPECT_EQ(sum[i], y[3 * 64 + i] + v[i]);
  }
}

// Neither sources nor one value twice can be moved, columns are no range, and neither are rows that
// begin between 64-byte boundaries.
TEST_P(PlanOn, other_copies__are_made) {
  const auto copied = [&](const std::function<Value(Value x)>& make, Shape shape) {
    Graph g;
    const Value x = g.input("x", {DType::f32, std::move(shape)});
    g.output("y", make(x));
    Plan p(g, context(), unfused());
    return steps_in_place(p) == 0;
  };
  EXPECT_TRUE(copied([](Value x) { return ops::concat({x, ops::silu(x)}, 0); }, {4, 64}));
  EXPECT_TRUE(copied(
      [](Value x) {
        const Value a = ops::silu(x);
        return ops::concat({a, a}, 0);
      },
      {4, 64}));
  EXPECT_TRUE(copied([](Value x) { return ops::concat({ops::silu(x), plus(x, x)}, 1); }, {4, 64}));
  EXPECT_TRUE(copied([](Value x) { return ops::slice(ops::silu(x), 1, 0, 32); }, {4, 64}));
  EXPECT_TRUE(copied([](Value x) { return ops::slice(ops::silu(x), 0, 1, 3); }, {4, 65}));
}

// An update by a slice of another state takes what that held before, in either order.
TEST_P(PlanOn, a_slice_of_a_state__is_of_what_it_held_before) {
  for (const bool slice_first : {false, true})
    for (const bool declared_first : {false, true}) {
      Graph g;
      const Value a = g.source(Source::Kind::state, "a", {DType::f32, {4, 64}});
      g.source(Source::Kind::state, "b", {DType::f32, {2, 64}});
      Value part = slice_first ? ops::slice(a, 0, 0, 2) : Value();
      const Value next = plus(a, a);
      if (!slice_first) part = ops::slice(a, 0, 0, 2);
      if (declared_first) g.update("b", part);
      g.update("a", next);
      if (!declared_first) g.update("b", part);
      Plan p(g, context(), unfused());
      const Tensor start = noise({4, 64}, 8);
      p.bind("a", start.clone());
      p.bind("b", Tensor(DType::f32, {2, 64}));
      p.run({});
      const Tensor after = p.fetch("a"), slice = p.fetch("b");
      for (size_t i = 0; i < 128; ++i) {
        EXPECT_EQ(after.span<float>()[i], 2 * start.span<float>()[i]);
        EXPECT_EQ(slice.span<float>()[i], start.span<float>()[i]) << slice_first << declared_first;
      }
    }
}

// A state as large as an update writes, whatever lies behind it in a larger tensor.
TEST_P(PlanOn, an_update_by_a_prefix__writes_no_more_than_its_source) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {40}});
  g.source(Source::Kind::state, "s", {DType::f32, {33}});
  g.update("s", ops::slice(plus(x, x), 0, 0, 33));
  Plan p(g, context(), unfused());
  const auto memory = context().device->allocate(64 * sizeof(float));
  const Tensor all({DType::f32, {64}}, memory);
  context().device->copy(filled({DType::f32, {64}}, 7), all);
  p.bind("s", Tensor({DType::f32, {33}}, memory));
  p.run({{"x", noise({40}, 9)}});
  Tensor after(Type{DType::f32, {64}});
  context().device->copy(all, after);
  EXPECT_NE(after.span<float>()[32], 7);
  for (size_t i = 33; i < 64; ++i) EXPECT_EQ(after.span<float>()[i], 7) << i;
}

// What an update needs in its source's memory stays there.
TEST_P(PlanOn, an_update__that_is_also_joined_to_another_value_is_right) {
  Graph g;
  const Value w = g.source(Source::Kind::state, "w", {DType::f32, {4, 64}});
  const Value next = plus(w, ops::silu(w)), other = plus(next, next);
  g.output("both", ops::concat({next, other}, 0));
  g.update("w", next);
  Plan p(g, context(), unfused());
  const Tensor start = noise({4, 64}, 6);
  p.bind("w", start.clone());
  const NamedTensors out = p.run({});
  const Tensor after = p.fetch("w");
  for (size_t i = 0; i < 256; ++i) {
    const float v = start.span<float>()[i], want = v + v / (1 + std::exp(-v));
    EXPECT_NEAR(after.span<float>()[i], want, 1e-6);
    EXPECT_NEAR(out.at("both").span<float>()[i], want, 1e-6);
    EXPECT_NEAR(out.at("both").span<float>()[256 + i], 2 * want, 2e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(cpu, PlanOn, ::testing::ValuesIn(test::only("cpu")));
INSTANTIATE_TEST_SUITE_P(cuda, PlanOn, ::testing::ValuesIn(test::only("cuda")));

}  // namespace
}  // namespace ebb::plan_test
