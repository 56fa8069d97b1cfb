// Pictures that can be laid side by side, against networks of torch with circular padding
// (tools/golden/tiling_golden.py).
#include <gtest/gtest.h>

#include "backends.h"
#include "ops/prim/conv2d/op.h"
#include "passes/circular_padding.h"
#include "pipeline/text_to_image.h"
#include "support/files.h"
#include "support/golden_distance.h"
#include "support/small_checkpoint.h"

namespace ebb::testing {
namespace {

const nlohmann::json& runs() {
  static const nlohmann::json all = read_golden("tiling")["runs"];
  return all;
}

struct On {
  size_t run;
  std::string backend;
};
std::vector<On> runs_on(const std::string& backend) {
  std::vector<On> out;
  for (size_t i = 0; i < runs().size() && !test::only(backend).empty(); ++i)
    out.push_back({i, backend});
  return out;
}

class GoldenTiling : public test::OnBackend, public ::testing::WithParamInterface<On> {
 protected:
  void SetUp() override {
    if (!text::has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
    open(GetParam().backend);
  }
};
const auto name_of_run = [](const auto& info) {
  return runs()[info.param.run]["case"].template get<std::string>();
};
INSTANTIATE_TEST_SUITE_P(cpu, GoldenTiling, ::testing::ValuesIn(runs_on("cpu")), name_of_run);
INSTANTIATE_TEST_SUITE_P(cuda, GoldenTiling, ::testing::ValuesIn(runs_on("cuda")), name_of_run);

}  // namespace

TEST_P(GoldenTiling, run__ends_at_the_references_latents_and_pixels) {
  const nlohmann::json& g = runs()[GetParam().run];
  TextToImageRequest q = recorded_request(g);
  q.tiling = {.x = g["tiling"] != "y", .y = g["tiling"] != "x"};
  TextToImage pipeline(small_checkpoint(g), context_);
  Picture made;
  RunEvents events;
  events.picture = [&](Picture p) { made = std::move(p); };
  pipeline.run(pipeline.resolve(q), events);
  EXPECT_LT(distance("latents", made.latents.span<float>(), g["latents"]), 1e-4);
  EXPECT_LT(distance("pixels", made.pixels.span<float>(), g["pixels"]), 1e-4);
}

TEST(circular_padding, graph__keeps_convolutions_that_pad_one_side_and_refuses_images_too_small) {
  const auto graph = [](int64_t side, std::vector<int64_t> pad) {
    Graph g;
    const Value x = g.input("x", {DType::f32, {1, side, side, 2}});
    const Value w = g.input("w", {DType::f32, {3, 5, 5, 2}});
    g.output("y", ops::conv2d(x, w, {}, {.pad = std::move(pad)}));
    return g;
  };
  const Graph one_side = graph(8, {0, 0, 1, 1});
  EXPECT_EQ(circular_padding(one_side, {true, true}).nodes().size(), one_side.nodes().size());
  EXPECT_EQ(circular_padding(graph(8, {2, 2, 2, 2}), {true, false}).nodes().size(), 4u);
  expect_error(
      [&] {
        circular_padding(graph(1, {2, 2, 2, 2}), {true, true});
      },
      "tiling: a side of 1 is too small for a padding of 2");
}

}  // namespace ebb::testing
