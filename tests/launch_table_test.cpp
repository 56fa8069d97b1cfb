// What plans of whole networks launch and move, as recorded: a change of a pass or an op that costs
// launches or bytes shows in the files' diff. With EBB_RECORD=1 the files are written anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "backends.h"
#include "diffusion/loss.h"
#include "models/model.h"
#include "passes/precision/mixed_precision.h"
#include "pipeline/load_model.h"
#include "runtime/context.h"
#include "runtime/launches.h"
#include "support/files.h"
#include "support/source_folder.h"
#include "train/model_weights.h"
#include "train/step.h"

namespace ebb::launch_table_test {
namespace {

constexpr int64_t batch = 32;

std::string table_of(const NamedModel& m, bool train, const Context& context, DType dtype) {
  const CommonConfig& c = m.config.common();
  const nn::Network network = network_of(*m.model, m.config);
  CompileOptions options;
  Graph g;
  if (train) {
    const Graph loss = loss_graph(usual_diffusion(*m.model, m.config), network,
                                  {.batch = batch,
                                   .image = {c.image_size, c.image_size, c.in_channels},
                                   .conditions = class_conditions(m.config)});
    g = train::train_step(
        loss, {.dtype = dtype, .undecayed = nn::without_decay(weights_of(*m.model, m.config))});
  } else {
    Graph forward;
    forward.output("F", network(forward, network_inputs(forward, *m.model, m.config, batch)));
    g = mixed_precision(forward, dtype, Parameters::rounded);
    options.weights = train::described_weights(weights_of(*m.model, m.config));
  }
  Lowering l{*context.device, options};
  return launch_table(lowered(g, l), l);
}

class LaunchTable : public ::testing::TestWithParam<const char*> {};

TEST_P(LaunchTable, plans__launch_and_move_what_is_recorded) {
  const std::string name = GetParam();
  const NamedModel m = find_model(name);
  const Context cpu = open_context("cpu");
  std::string text;
  const auto add = [&](const Context& context, std::string_view device, DType dtype) {
    for (const bool train : {true, false})
      text += str("# ", train ? "training step" : "evaluation", ", ", batch, " images, ", dtype,
                  ", ", device, "\n", table_of(m, train, context, dtype));
  };
  add(cpu, "cpu", DType::f32);
  if (!test::only("cuda").empty()) add(open_context("cuda:h200"), "cuda:h200", DType::bf16);
  const std::string path = testing::source_folder() + "/tests/golden/launches/" + name + ".txt";
  if (std::getenv("EBB_RECORD")) {
    ASSERT_FALSE(test::only("cuda").empty()) << "a build without CUDA records half of a file";
    std::ofstream(path) << text;
  }
  const std::string recorded = testing::file_bytes(path);
  if (!test::only("cuda").empty())
    EXPECT_EQ(text, recorded);
  else
    EXPECT_TRUE(recorded.starts_with(text)) << text << "\nrecorded:\n" << recorded;
}

INSTANTIATE_TEST_SUITE_P(networks, LaunchTable,
                         ::testing::Values("tiny", "cs179", "ddpmpp_cifar10", "unet64", "adm64",
                                           "dit_xl2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ebb::launch_table_test
