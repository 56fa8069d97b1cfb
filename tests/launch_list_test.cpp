// What plans of two networks do launch by launch, as recorded: a change of the order, an epilogue,
// a view, a side stream or the memory shows in the files' diff. With EBB_RECORD=1 the files are
// written anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "backends.h"
#include "diffusion/denoiser.h"
#include "diffusion/loss.h"
#include "models/model.h"
#include "pipeline/load_model.h"
#include "runtime/context.h"
#include "runtime/launches.h"
#include "support/files.h"
#include "support/source_folder.h"
#include "train/model_weights.h"
#include "train/step.h"

namespace ebb::launch_list_test {
namespace {

constexpr int64_t batch = 8;

struct ListCase {
  const char* model;
  const char* device;
  DType dtype;
  bool train;

  std::string name() const {
    const std::string_view d = device;
    return str(model, train ? "_train_" : "_denoise_", d.substr(0, d.find(':')));
  }
};
void PrintTo(const ListCase& c, std::ostream* out) { *out << c.name(); }

// A training step, or an evaluation with guidance, where there are classes, and the vectors of a
// sampler.
std::string list_of(const ListCase& c) {
  const NamedModel m = find_model(c.model);
  const CommonConfig& config = m.config.common();
  const nn::Network network = network_of(*m.model, m.config);
  const DiffusionConfig diffusion = usual_diffusion(*m.model, m.config);
  const Shape image{config.image_size, config.image_size, config.in_channels};
  const Context context = open_context(c.device);
  CompileOptions options;
  Graph g;
  if (c.train) {
    const Graph loss =
        loss_graph(diffusion, network,
                   {.batch = batch, .image = image, .conditions = class_conditions(m.config)});
    g = train::train_step(
        loss, {.dtype = c.dtype, .undecayed = nn::without_decay(weights_of(*m.model, m.config))});
  } else {
    g = denoiser_graph(diffusion, network,
                       {.batch = batch,
                        .image = image,
                        .conditions = class_conditions(m.config),
                        .branches = config.classes > 0 ? both_branches : std::vector{Branch::cond},
                        .dtype = c.dtype});
    options.weights = train::described_weights(weights_of(*m.model, m.config));
  }
  Lowering l{*context.device, options};
  return launch_list(lowered(g, l), l);
}

class LaunchList : public ::testing::TestWithParam<ListCase> {};

TEST_P(LaunchList, plans__are_what_is_recorded) {
  const ListCase& c = GetParam();
  if (std::string_view(c.device) != "cpu" && test::only("cuda").empty())
    GTEST_SKIP() << "built without CUDA";
  const std::string path =
      testing::source_folder() + "/tests/golden/launches/list/" + c.name() + ".txt";
  const std::string text = list_of(c);
  if (std::getenv("EBB_RECORD")) std::ofstream(path) << text;
  EXPECT_EQ(text, testing::file_bytes(path));
}

INSTANTIATE_TEST_SUITE_P(networks, LaunchList,
                         ::testing::Values(ListCase{"tiny", "cpu", DType::f32, true},
                                           ListCase{"tiny", "cpu", DType::f32, false},
                                           ListCase{"tiny", "cuda:h200", DType::bf16, true},
                                           ListCase{"tiny", "cuda:h200", DType::bf16, false},
                                           ListCase{"unet64", "cuda:h200", DType::bf16, true},
                                           ListCase{"unet64", "cuda:h200", DType::bf16, false}),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace ebb::launch_list_test
