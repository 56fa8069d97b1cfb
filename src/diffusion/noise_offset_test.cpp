// Noise that is the same for all pixels of a channel (DiffusionConfig::noise_offset).
#include <gtest/gtest.h>

#include <cmath>

#include "diffusion/loss.h"
#include "ops/prim/pointwise/op.h"
#include "runtime/plan.h"

namespace ebb {
namespace {

// Half of its input, which it shows as output "x".
Value network(Graph& g, const nn::NetworkInputs& in) {
  g.output("x", in.x);
  return ops::map({in.x}, [](auto v) { return v[0] * 0.5; });
}

TEST(loss_graph, noise_offset__is_one_number_for_all_pixels_of_a_channel) {
  const auto noisy = [](double offset) {
    DiffusionConfig c{.precond = "eps"};
    c.noise_offset = offset;
    Plan plan(loss_graph(c, network, {.batch = 2, .image = {4, 5, 3}}),
              open_context("cpu", {.threads = 1}));
    plan.bind_missing();
    return plan
        .run({{"images", Tensor(DType::f32, {2, 4, 5, 3})},
              {"seed", scalar_tensor(int64_t{1})},
              {"image", tensor_of(std::vector<int64_t>{3, 4}, {2})},
              {"step", scalar_tensor(int64_t{0})}})
        .at("x");
  };
  const Tensor plain = noisy(0), shifted = noisy(0.5);
  const auto a = plain.span<float>(), b = shifted.span<float>();
  for (size_t i = 0; i < a.size(); ++i) {
    const size_t first = i / 60 * 60 + i % 3;  // of the image and the channel
    EXPECT_NEAR(b[i] - a[i], b[first] - a[first], 1e-5);
    EXPECT_GT(std::abs(b[i] - a[i]), 1e-6);
  }
  EXPECT_GT(std::abs(b[0] - a[0] - b[1] + a[1]), 1e-6);
}

}  // namespace
}  // namespace ebb
