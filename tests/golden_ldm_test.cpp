// Stable Diffusion's U-Nets against diffusers' outputs, and the names of their tensors in its files
// (tools/golden/ldm_golden.py).
#include <gtest/gtest.h>

#include "backends.h"
#include "passes/precision/mixed_precision.h"
#include "runtime/plan.h"
#include "support/golden_distance.h"
#include "support/golden_networks.h"
#include "support/ldm_case.h"

namespace ebb::testing::golden_ldm_test {
namespace {

class GoldenLdm : public test::OnBackend, public ::testing::WithParamInterface<NetworkOn> {
 protected:
  GoldenLdm() : c_(GetParam().network) {}
  void SetUp() override { open(GetParam().backend); }

  std::vector<float> output(DType dtype) {
    Plan plan(mixed_precision(c_.graph(), dtype), context_);
    for (const nn::Weight& w : weights_of(*c_.model, c_.config))
      plan.bind(w.name, hashed_weight(w));
    const Tensor f = plan.run(c_.inputs()).at("F");
    return {f.span<float>().begin(), f.span<float>().end()};
  }

  LdmCase c_;
};

INSTANTIATE_TEST_SUITE_P(golden, GoldenLdm, ::testing::ValuesIn(networks_on("cpu", ldm_cases())),
                         name_of_network);
INSTANTIATE_TEST_SUITE_P(cuda, GoldenLdm, ::testing::ValuesIn(networks_on("cuda", ldm_cases())),
                         name_of_network);

double norm_of(std::span<const float> v) {
  double squares = 0;
  for (const float x : v) squares += double{x} * double{x};
  return std::sqrt(squares);
}

}  // namespace

TEST_P(GoldenLdm, output__is_that_of_diffusers) {
  constexpr double promise = 1e-4;
  const nlohmann::json& golden = c_.golden["output"];
  const double allowed = std::max(promise, 10 * golden["f64_rel_error"].get<double>());
  const double error = distance("output", output(DType::f32), golden);
  EXPECT_LE(error, allowed);
  RecordProperty("error", str(error, " PyTorch ", golden["f64_rel_error"].get<double>()));
}

// Mixed precision may not err more than twice as much as PyTorch's on the same network.
TEST_P(GoldenLdm, output_in_16_bits__errs_at_most_twice_as_much_as_pytorch) {
  const std::vector<float> exact = output(DType::f32);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::vector<float> low = output(dtype);
    std::vector<float> error(exact.size());
    for (size_t i = 0; i < exact.size(); ++i) error[i] = low[i] - exact[i];
    const double ours = norm_of(error) / norm_of(exact);
    const double theirs = c_.golden["output"][str(dtype, "_rel_error")].get<double>();
    EXPECT_LE(ours, 2 * theirs) << dtype;
    EXPECT_GT(ours, 1e-5) << "nothing ran in " << dtype;
    RecordProperty(str(dtype, "_error"), str(ours, " PyTorch ", theirs));
  }
}

TEST_P(GoldenLdm, tensors__have_the_names_and_shapes_of_the_original) {
  std::map<std::string, Shape> ours, theirs;
  for (const nn::Weight& w : weights_of(*c_.model, c_.config)) ours[w.name] = nn::file_shape(w);
  for (const nlohmann::json& t : c_.golden["names"])
    theirs[t[0].get<std::string>()] = Shape(t[2].get<std::vector<int64_t>>());
  EXPECT_EQ(ours, theirs);
}

}  // namespace ebb::testing::golden_ldm_test
