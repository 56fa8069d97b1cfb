// The training step: against AdamW written out, with micro-batches, in bf16, and with non-finite
// values.
#include "train/step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "base/random.h"
#include "ops/mse/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::train {
namespace {

constexpr int64_t inputs = 5, outputs = 3;

Tensor noise(Shape shape, uint64_t seed) {
  Tensor t(DType::f32, std::move(shape));
  fill_normal({.seed = seed}, 0, t.span<float>());
  return t;
}

// loss = mean((x w^T + b - y)^2)
Graph linear_loss(int64_t batch) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {batch, inputs}});
  const Value y = g.input("y", {DType::f32, {batch, outputs}});
  const Value w = g.source(Source::Kind::param, "w", {DType::f32, {outputs, inputs}});
  const Value b = g.source(Source::Kind::param, "b", {DType::f32, {outputs}});
  g.output("loss", ops::mse(ops::linear(x, w, b), y));
  return g;
}

StepOptions undecayed_bias(StepOptions o) {
  o.undecayed = {"b"};
  return o;
}

// A plan with random weights, the averages starting at the weights.
struct Toy {
  StepOptions options;
  Plan plan;
  std::optional<Plan> accumulation;  // of micro-batches but the last
  Toy(int64_t batch, const StepOptions& o)
      : options(undecayed_bias(o)),
        plan(train_step(linear_loss(batch), options), open_context("cpu", {.threads = 1})) {
    for (const auto& [name, shape] :
         {std::pair{"w", Shape{outputs, inputs}}, {"b", Shape{outputs}}}) {
      plan.bind(name, noise(shape, 7));
      plan.bind(str("ema.", name), noise(shape, 7));
    }
    plan.bind_missing();
    if (!options.accumulate) return;
    accumulation.emplace(accumulation_step(linear_loss(batch), options),
                         open_context("cpu", {.threads = 1}));
    accumulation->share_arena(plan);
    accumulation->bind_as(plan);
  }
  NamedTensors run(const Tensor& x, const Tensor& y, const StepInputs& in) {
    const bool last = !accumulation || in.micro_batch + 1 == in.micro_batches;
    Plan& now = last ? plan : *accumulation;
    NamedTensors all = step_inputs(in, options);
    all["x"] = x;
    all["y"] = y;
    std::erase_if(all, [&](const auto& i) { return !now.graph().find_source(i.first); });
    return now.run(all);
  }
  std::vector<float> bits(std::string_view name) const {
    const auto v = plan.bound(name).span<float>();
    return {v.begin(), v.end()};
  }
};

// The same in double, with the gradient of the loss written out.
struct Reference {
  static constexpr size_t n = outputs * inputs + outputs;
  std::vector<double> p, m = std::vector<double>(n), v = m, ema;
  double norm = 0;

  void step(const Tensor& x, const Tensor& y, const StepInputs& in, const StepOptions& o) {
    const auto xs = x.span<float>(), ys = y.span<float>();
    const size_t batch = xs.size() / inputs;
    std::vector<double> g(n);
    for (size_t r = 0; r < batch; ++r)
      for (size_t k = 0; k < outputs; ++k) {
        double e = p[outputs * inputs + k] - ys[r * outputs + k];
        for (size_t i = 0; i < inputs; ++i) e += p[k * inputs + i] * xs[r * inputs + i];
        e *= 2.0 / static_cast<double>(batch * outputs);
        for (size_t i = 0; i < inputs; ++i) g[k * inputs + i] += e * xs[r * inputs + i];
        g[outputs * inputs + k] += e;
      }
    norm = 0;
    for (const double d : g) norm += d * d;
    norm = std::sqrt(norm);
    const double clip = o.max_norm > 0 ? std::min(1.0, o.max_norm / norm) : 1.0;
    const double t = static_cast<double>(in.step) + 1;
    for (size_t i = 0; i < n; ++i) {
      const double d = g[i] * clip;
      m[i] = o.settings.beta1 * m[i] + (1 - o.settings.beta1) * d;
      v[i] = o.settings.beta2 * v[i] + (1 - o.settings.beta2) * d * d;
      if (i < outputs * inputs) p[i] *= 1 - in.lr * o.settings.weight_decay;
      p[i] -= in.lr * m[i] / (1 - std::pow(o.settings.beta1, t)) /
              (std::sqrt(v[i] / (1 - std::pow(o.settings.beta2, t))) + o.settings.eps);
      ema[i] = in.ema_decay * ema[i] + (1 - in.ema_decay) * p[i];
    }
  }
};

TEST(train_step, ten_steps__equal_adamw_written_out) {
  const StepOptions o{.settings = {0.9, 0.99, 1e-8, 0.1}, .max_norm = 0.5};
  Toy toy(4, o);
  Reference ref;
  for (const float w : toy.bits("w")) ref.p.push_back(w);
  for (const float b : toy.bits("b")) ref.p.push_back(b);
  ref.ema = ref.p;
  for (int64_t s = 0; s < 10; ++s) {
    const Tensor x = noise({4, inputs}, 100 + s), y = noise({4, outputs}, 200 + s);
    const StepInputs in{.step = s, .lr = 0.01 * (1 + static_cast<double>(s)), .ema_decay = 0.8};
    const auto out = toy.run(x, y, in);
    ref.step(x, y, in, o);
    EXPECT_NEAR(out.at("grad_norm").span<float>()[0], ref.norm, 1e-5 * ref.norm);
    EXPECT_EQ(out.at("finite").span<float>()[0], 1);
  }
  const auto check = [&](const char* prefix, const std::vector<double>& want) {
    std::vector<float> got = toy.bits(str(prefix, "w"));
    for (const float b : toy.bits(str(prefix, "b"))) got.push_back(b);
    // ten steps of f32 rounding on numbers of size 1
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << prefix << i;
  };
  check("", ref.p);
  check("m.", ref.m);
  check("v.", ref.v);
  check("ema.", ref.ema);
}

TEST(train_step, accumulation__equals_the_full_batch) {
  const StepOptions o{.max_norm = 1}, parts{.max_norm = 1, .accumulate = true};
  Toy whole(6, o), part(2, parts);
  for (int64_t s = 0; s < 3; ++s) {
    const Tensor x = noise({6, inputs}, 100 + s), y = noise({6, outputs}, 200 + s);
    StepInputs in{.step = s, .lr = 0.01, .ema_decay = 0.5, .micro_batches = 3};
    const float norm = whole.run(x, y, in).at("grad_norm").span<float>()[0];
    for (in.micro_batch = 0; in.micro_batch < 3; ++in.micro_batch) {
      const std::vector<float> before = part.bits("w");
      const auto out = part.run(x.rows(2 * in.micro_batch, 2 * in.micro_batch + 2).clone(),
                                y.rows(2 * in.micro_batch, 2 * in.micro_batch + 2).clone(), in);
      EXPECT_EQ(part.bits("w") == before, in.micro_batch < 2)
          << "only the last micro-batch updates the weights";
      if (in.micro_batch == 2) {
        EXPECT_NEAR(out.at("grad_norm").span<float>()[0], norm, 1e-5);
      }
    }
  }
  for (const char* name : {"w", "b", "m.w", "v.b", "ema.w"}) {
    const auto a = whole.bits(name), b = part.bits(name);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << name;
  }
}

TEST(train_step, loss_or_gradient_not_finite__leaves_everything_as_it_was) {
  for (const bool parts : {false, true}) {
    Toy toy(4, {.max_norm = 1, .accumulate = parts});
    const Tensor x = noise({4, inputs}, 1), y = noise({4, outputs}, 2);
    toy.run(x, y, {.lr = 0.1, .ema_decay = 0.5});
    const auto all = [&] {
      std::vector<std::vector<float>> out;
      for (const char* n : {"w", "b", "m.w", "m.b", "v.w", "v.b", "ema.w", "ema.b"})
        out.push_back(toy.bits(n));
      return out;
    };
    const auto good = all();
    const float big = std::numeric_limits<float>::max();
    const float inf = std::numeric_limits<float>::infinity();
    for (const float bad : {std::nanf(""), inf, big}) {
      Tensor broken = y.clone();
      broken.span<float>()[5] = bad;
      const auto out = toy.run(x, broken, {.step = 1, .lr = 0.1, .ema_decay = 0.5});
      EXPECT_EQ(out.at("finite").span<float>()[0], 0) << bad;
      EXPECT_EQ(all(), good) << bad;
    }
    // and the next good step goes on
    EXPECT_EQ(toy.run(x, y, {.step = 1, .lr = 0.1, .ema_decay = 0.5}).at("finite").span<float>()[0],
              1);
    EXPECT_NE(all(), good);
    for (const float w : toy.bits("w")) EXPECT_TRUE(std::isfinite(w));
  }
}

TEST(train_step, bf16__keeps_f32_weights_and_is_near) {
  Toy full(4, {}), low(4, {.dtype = DType::bf16});
  const Tensor x = noise({4, inputs}, 1), y = noise({4, outputs}, 2);
  const float a = full.run(x, y, {.lr = 1e-3}).at("loss").span<float>()[0];
  const float b = low.run(x, y, {.lr = 1e-3}).at("loss").span<float>()[0];
  EXPECT_NEAR(a, b, 0.02 * a);  // 8 bits of mantissa
  EXPECT_NE(a, b);
  EXPECT_EQ(low.plan.bound("w").dtype(), DType::f32);
  EXPECT_EQ(low.plan.bound("m.w").dtype(), DType::f32);
}

TEST(train_step, updates__are_done_in_place) {
  Toy toy(4, {.max_norm = 1, .accumulate = true});
  EXPECT_NE(toy.plan.text().find("copies 0"), std::string::npos) << toy.plan.text();
}

TEST(train_step, no_parameters__is_an_error) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {4}});
  g.output("loss", ops::mse(x, x));
  EXPECT_THROW(train_step(g, {}), Error);
}

}  // namespace
}  // namespace ebb::train
