// What networks do with classes, dropout and starting weights, on every model.
#include <gtest/gtest.h>

#include <set>

#include "backends.h"
#include "diffusion/loss.h"
#include "ops/dropout/op.h"
#include "ops/prim/matmul/op.h"
#include "passes/contractions/fuse_epilogues.h"
#include "passes/precision/mixed_precision.h"
#include "passes/simplify.h"
#include "pipeline/load_model.h"
#include "runtime/plan.h"
#include "support/golden_case.h"
#include "support/graphs.h"
#include "train/step.h"

namespace ebb::testing::networks_test {
namespace {

using SmallNetwork = std::pair<const Model*, ModelConfig>;

// F of one network for hashed weights (or starting weights) and hashed inputs, by class ids.
class Runner {
 public:
  Runner(const SmallNetwork& m, bool hashed, const Context& context)
      : model_(*m.first), config_(m.second), plan_(plan(context)) {
    for (const nn::Weight& w : weights_) {
      plan_.bind(w.name, hashed ? ebb::testing::hashed_weight(w) : nn::initial_tensor(w, 1));
    }
    plan_.bind_missing();
  }

  std::vector<float> operator()(std::vector<int64_t> classes) {
    const CommonConfig& c = config_.common();
    const Shape images{2, c.image_size, c.image_size, c.in_channels};
    NamedTensors in;
    in["x"] = ebb::testing::hashed_input("input.x", images);
    in["noise"] = tensor_of(std::vector<float>{-0.5f, 0.25f}, {2});
    for (const nn::Condition& condition : model_.conditions(config_))
      in[condition.name] = condition.nulls(2);
    if (c.classes > 0) in["class"] = tensor_of(classes, {2});
    const Tensor f = plan_.run(in).at("F");
    return {f.span<float>().begin(), f.span<float>().end()};
  }

 private:
  Plan plan(const Context& context) {
    Graph g;
    g.output("F", network_of(model_, config_)(g, network_inputs(g, model_, config_, 2)));
    weights_ = weights_of(model_, config_);
    return Plan(g, context);
  }

  const Model& model_;
  ModelConfig config_;
  std::vector<nn::Weight> weights_;
  Plan plan_;
};

// Small networks of all the models with classes.
std::vector<SmallNetwork> small_networks() {
  std::vector<SmallNetwork> out;
  for (const char* name : {"adm_full", "songunet_ddpmpp", "dhariwal", "dit_p2"}) {
    ebb::testing::GoldenCase c(name);
    out.emplace_back(c.model, c.config);
  }
  const NamedModel tiny = find_model("tiny");
  out.emplace_back(tiny.model, tiny.config);
  return out;
}

class NetworksOn : public test::OnEachBackend {};
INSTANTIATE_TEST_SUITE_P(cpu, NetworksOn, ::testing::ValuesIn(test::only("cpu")));
INSTANTIATE_TEST_SUITE_P(cuda, NetworksOn, ::testing::ValuesIn(test::only("cuda")));

}  // namespace

TEST_P(NetworksOn, class_outside_of_the_range__is_no_class) {
  for (const auto& [model, config] : small_networks()) {
    Runner f({model, config}, true, context_);
    const int64_t classes = config.common().classes;
    const auto none = f({-1, -1});
    EXPECT_EQ(f({classes, classes}), none) << model->name;
    EXPECT_NE(f({0, 0}), none) << model->name;
    EXPECT_NE(f({0, 1}), f({0, 0})) << model->name;
  }
}

TEST_P(NetworksOn, starting_weights__give_finite_outputs_of_the_size_of_the_last_layers_start) {
  for (const auto& [model, config] : small_networks()) {
    Runner f({model, config}, false, context_);
    double squares = 0;
    for (const float v : f({0, 1})) squares += double{v} * double{v};
    // The last layers start at zero, or at 1e-5 of their usual size (SongUNet).
    EXPECT_LE(squares, model->name == "songunet" ? 1e-6 : 0.0) << model->name;
  }
}

TEST(networks, dropout__is_in_training_graphs_only_and_draws_anew_in_every_layer) {
  for (auto [model, config] : small_networks()) {
    if (model->name == "dit") continue;  // has none
    config.common().dropout = 0.1;
    for (const bool training : {false, true}) {
      Graph g;
      nn::NetworkInputs in = network_inputs(g, *model, config, 2);
      if (training)
        in.random =
            ops::RandomKeys{g.input("seed", {DType::i64, {}}), g.input("image", {DType::i64, {2}}),
                            g.input("step", {DType::i64, {}})};
      network_of(*model, config)(g, in);
      std::set<std::string> uses;
      size_t count = 0;
      for (const Node& n : g.nodes()) {
        if (n.op != &ops::def::dropout()) continue;
        ++count;
        uses.insert(n.attrs.text());
      }
      EXPECT_EQ(count > 0, training) << model->name;
      EXPECT_EQ(uses.size(), count) << model->name;
    }
  }
}

TEST(networks, a_network_built_twice__shares_its_weights) {
  const NamedModel tiny = find_model("tiny");
  Graph g;
  const nn::NetworkInputs in = network_inputs(g, *tiny.model, tiny.config, 2);
  const nn::Network f = network_of(*tiny.model, tiny.config);
  f(g, in);
  const size_t sources = g.sources().size();
  f(g, in);
  EXPECT_EQ(g.sources().size(), sources);
}

namespace {

// Activations that fuse into matrix products where kernels do what has a form: in a training
// step and in one evaluation of a network.
std::pair<int64_t, int64_t> fused_activations(const char* name) {
  const NamedModel m = find_model(name);
  const CommonConfig& c = m.config.common();
  const nn::Network network = network_of(*m.model, m.config);
  const auto count = [](const Graph& g) {
    const Graph primitives = common_subexpressions(test::in_primitives(g));
    const Graph fused = fuse_epilogues(primitives, {.supports = test::serves_forms});
    using Kind = ops::EpilogueForm::Kind;
    return test::count_forms(fused, ops::def::matmul(), Kind::activated) +
           test::count_forms(fused, ops::def::matmul(), Kind::activation_grad);
  };
  const Graph loss = loss_graph(usual_diffusion(*m.model, m.config), network,
                                {.batch = 2,
                                 .image = {c.image_size, c.image_size, c.in_channels},
                                 .conditions = class_conditions(m.config)});
  Graph evaluation;
  evaluation.output("F", network(evaluation, network_inputs(evaluation, *m.model, m.config, 2)));
  return {count(train::train_step(loss, {.dtype = DType::bf16})),
          count(mixed_precision(evaluation, DType::bf16))};
}

}  // namespace

TEST(networks, activations_of_matmuls__fuse_in_training_and_sampling) {
  using Counts = std::pair<int64_t, int64_t>;
  EXPECT_EQ(fused_activations("unet64"), Counts(3, 2));
  EXPECT_EQ(fused_activations("adm64"), Counts(2, 1));
  EXPECT_EQ(fused_activations("dit_xl2"), Counts(58, 29));
  EXPECT_EQ(fused_activations("ddpmpp_cifar10"), Counts(3, 2));
}

}  // namespace ebb::testing::networks_test
