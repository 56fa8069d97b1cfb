// Pictures that can be laid side by side, against networks of torch with circular padding
// (tools/golden/tiling_golden.py).
#include <gtest/gtest.h>

#include "ops/prim/conv2d/op.h"
#include "passes/contractions/circular_padding.h"
#include "support/files.h"
#include "support/golden_distance.h"
#include "support/golden_runs.h"
#include "support/small_checkpoint.h"

namespace ebb::testing::golden_tiling_test {
namespace {

const nlohmann::json& runs() {
  static const nlohmann::json all = read_golden("tiling")["runs"];
  return all;
}

class GoldenTiling : public GoldenRunOn {};
INSTANTIATE_TEST_SUITE_P(cpu, GoldenTiling, ::testing::ValuesIn(runs_on(runs(), "cpu")),
                         name_of_run);
INSTANTIATE_TEST_SUITE_P(cuda, GoldenTiling, ::testing::ValuesIn(runs_on(runs(), "cuda")),
                         name_of_run);

}  // namespace

TEST_P(GoldenTiling, run__ends_at_the_references_latents_and_pixels) {
  const nlohmann::json& g = run();
  TextToImageRequest q = recorded_request(g);
  q.tiling = {.x = g["tiling"] != "y", .y = g["tiling"] != "x"};
  const Picture made = picture_of(small_checkpoint(g), q, context_);
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

}  // namespace ebb::testing::golden_tiling_test
