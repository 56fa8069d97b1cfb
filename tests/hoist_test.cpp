// What depends on conditions that seldom change is computed when they do, with the same bits.
#include "passes/schedule/hoist.h"

#include <gtest/gtest.h>

#include "diffusion/denoiser.h"
#include "models/model.h"
#include "nn/ops.h"
#include "support/far_device.h"
#include "support/files.h"
#include "support/hashed_weights.h"
#include "support/ldm_case.h"

namespace ebb::hoist_test {
namespace {

using testing::FarDevice;
using testing::hashed_input;
using testing::LdmCase;

Value param(Graph& g, std::string_view name, Shape shape) {
  return g.source(Source::Kind::param, name, {DType::f32, std::move(shape)});
}

HoistedGraph hoisted(const Graph& g) {
  return hoist(g, [](const Source& s) { return s.name == "text"; });
}

std::vector<std::string> names_of(const Graph& g) {
  std::vector<std::string> out;
  for (const Source& s : g.sources()) out.push_back(s.name);
  return out;
}

using Names = std::vector<std::string>;

TEST(hoist, what_depends_on_kept_inputs_and_weights__moves_with_what_it_reads) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {4, 6}}), text = g.input("text", {DType::f32, {3, 6}});
  const Value keys = ops::linear(text, param(g, "w", {6, 6}) * 2.0, {});
  g.output("y", ops::linear(ops::linear(x, param(g, "v", {6, 6}), {}), keys, {}));
  const HoistedGraph p = hoisted(g);
  EXPECT_EQ(names_of(p.hoisted), (Names{"text", "w", "hoisted.0"}));
  EXPECT_EQ(names_of(p.step), (Names{"x", "w", "v", "hoisted.0"}));
  EXPECT_EQ(p.hoisted.updates().size(), 1u);
  EXPECT_EQ(p.step.nodes().size(), 2u);
  EXPECT_EQ(p.states, Names{"hoisted.0"});
}

TEST(hoist, repeats_of_a_kept_input_and_the_input_itself__stay) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {4, 6}}), text = g.input("text", {DType::f32, {1, 6}});
  g.output("y", x + ops::broadcast_to(text, {4, 6}));
  const HoistedGraph p = hoisted(g);
  EXPECT_TRUE(p.states.empty());
  EXPECT_TRUE(p.hoisted.nodes().empty());
  EXPECT_EQ(names_of(p.step), (Names{"x", "text"}));
}

TEST(hoist, what_depends_on_states_that_change__stays) {
  Graph g;
  const Value text = g.input("text", {DType::f32, {4}});
  const Value s = g.source(Source::Kind::state, "s", {DType::f32, {4}});
  g.update("s", s * 0.5 + text);
  const HoistedGraph p = hoisted(g);
  EXPECT_TRUE(p.states.empty());
  EXPECT_EQ(p.step.nodes().size(), g.nodes().size());
}

// ---- denoisers -----------------------------------------------------------------------------

struct Guided {
  LdmCase c{"ldm_sd1"};
  DiffusionConfig diffusion{.precond = "eps", .betas = "scaled_linear"};
  DenoiserOptions options;

  explicit Guided(DType dtype) {
    const Shape text = LdmCase::shape_of(c.golden["inputs"]["text"]);
    nn::Condition states = c.model->conditions(c.config).at(0);
    states.shape = {text[1], text[2]};
    options = {
        .image = {8, 16, 4}, .conditions = {states}, .branches = both_branches, .dtype = dtype};
  }
  Tensor text(const std::string& name) const {
    const Shape& s = options.conditions[0].shape;
    return hashed_input(name, {1, s[0], s[1]});
  }
  void bind(auto& plan) const {
    for (const nn::Weight& w : weights_of(*c.model, c.config))
      plan.bind(w.name, testing::hashed_weight(w));
  }
};

std::vector<double> noise() {
  const Tensor x = hashed_input("noise", {8 * 16 * 4});
  return {x.span<float>().begin(), x.span<float>().end()};
}

// D of the plan of the whole graph, in which the keys and values of the text are computed.
std::vector<double> unhoisted(const Guided& n, const Context& context, double sigma) {
  Plan plan(denoiser_graph(n.diffusion, network_of(*n.c.model, n.c.config), n.options), context);
  n.bind(plan);
  Tensor x(DType::f32, {1, 8, 16, 4});
  std::ranges::transform(noise(), x.span<float>().begin(),
                         [](double v) { return static_cast<float>(v); });
  plan.bind_missing();
  plan.bind("latent.0", x);
  const PrecondNumbers k = Precond(n.diffusion).at(sigma);
  NamedTensors in{
      {"text", Tensor(DType::f32, {2, n.text("a").shape()[1], n.text("a").shape()[2]})}};
  const auto both = in["text"].span<float>();
  const Tensor a = n.text("a"), b = n.text("b");
  std::ranges::copy(a.span<float>(), both.begin());
  std::ranges::copy(b.span<float>(), both.begin() + a.numel());
  for (const Source& s : plan.graph().sources())
    if (s.kind == Source::Kind::input && s.name != "text") in[s.name] = scalar_tensor(0.f);
  const auto set = [&](const char* name, double v) { in[name] = scalar_tensor(float(v)); };
  set("c_skip", k.skip), set("c_out", k.out), set("c_in", k.in), set("c_noise", k.noise);
  set("weight.0", 3), set("weight.1", -2), set("mix.0", 1), set("role.1", 2);
  plan.run(in);
  const Tensor d = plan.fetch("latent.1");
  return {d.span<float>().begin(), d.span<float>().end()};
}

TEST(hoist, memory_of_what_is_computed_once__counts_as_the_denoisers) {
  const Guided n(DType::f32);
  const auto on = [&](const std::shared_ptr<FarDevice>& device) {
    return std::make_unique<Denoiser>(n.diffusion, network_of(*n.c.model, n.c.config), n.options,
                                      Context{.device = device});
  };
  const auto roomy = std::make_shared<FarDevice>();
  const int64_t all = roomy->free_memory();
  const auto d = on(roomy);
  EXPECT_GT(d->missing_bytes(), d->plan().missing_bytes());
  const int64_t need = all - roomy->free_memory() + d->missing_bytes();
  on(std::make_shared<FarDevice>(need))->check_memory();
  testing::expect_error([&] { on(std::make_shared<FarDevice>(need - 1))->check_memory(); },
                        "plan: out of memory: a run needs ");
}

TEST(hoist, denoiser_of_a_text__computes_keys_and_values_once_and_gives_the_same_bits) {
  const double sigma = 2.5;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Guided n(dtype);
    const Context context{.device = std::make_shared<FarDevice>()};
    Denoiser d(n.diffusion, network_of(*n.c.model, n.c.config), n.options, context);
    n.bind(d);
    d.guidance(3);
    d.condition("text", n.text("a"), {n.text("b")});
    for (const Node& node : d.plan().graph().nodes())
      EXPECT_FALSE(node.at.ends_with("attn2.to_k") || node.at.ends_with("attn2.to_v")) << node.at;
    const State first = d(noise(), sigma);
    EXPECT_EQ(first, unhoisted(n, context, sigma)) << dtype;
    d.condition("text", n.text("b"), {n.text("a")});
    EXPECT_NE(d(noise(), sigma), first);
    d.condition("text", n.text("a"), {n.text("b")});
    EXPECT_EQ(d(noise(), sigma), first);
  }
}

}  // namespace
}  // namespace ebb::hoist_test
