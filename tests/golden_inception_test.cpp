// Inception features, FID and KID against pytorch-fid and torch-fidelity, with hashed weights on
// hashed pictures (tools/golden/inception_golden.py).
#include <gtest/gtest.h>

#include <cmath>

#include "backends.h"
#include "support/far_device.h"
#include "support/files.h"
#include "support/golden_distance.h"
#include "support/golden_file.h"
#include "support/inception_file.h"
#include "train/frechet.h"
#include "train/inception.h"
#include "train/kernel_distance.h"

namespace ebb::testing::golden_inception_test {
namespace {

class GoldenInception : public test::OnEachBackend {
 protected:
  // Of the pictures of a name.
  Tensor features(const std::string& name) {
    const nlohmann::json& spec = golden_["pictures"][name];
    const Tensor images = hashed_pictures("pictures." + name, spec["n"], spec["height"],
                                          spec["width"], spec["square"]);
    auto net = train::load_inception(file_, images.shape().slice(1, 4), spec["n"], context_);
    return net.run(images).features;
  }
  static void SetUpTestSuite() { write_hashed_inception(file_); }
  static void TearDownTestSuite() { std::filesystem::remove(file_); }

  inline static const std::string file_ =
      ::testing::TempDir() + str("inception", ::getpid(), ".safetensors");
  const nlohmann::json golden_ = read_golden("inception");
};
INSTANTIATE_TEST_SUITE_P(cpu, GoldenInception, ::testing::ValuesIn(test::only("cpu")));
INSTANTIATE_TEST_SUITE_P(cuda, GoldenInception, ::testing::ValuesIn(test::only("cuda")));

constexpr double promise = 1e-4;  // of golden networks: the error of features, over their norm

TEST_P(GoldenInception, small_pictures__have_the_features_and_distances_of_the_references) {
  const Tensor fine = features("fine"), coarse = features("coarse");
  EXPECT_LE(distance("features.fine", fine.span<float>(), golden_["features"]["fine"]), promise);
  EXPECT_LE(distance("features.coarse", coarse.span<float>(), golden_["features"]["coarse"]),
            promise);
  const nlohmann::json& want = golden_["fine against coarse"];
  const double fid = want["fid"], kid = want["kid"];
  EXPECT_NEAR(train::frechet_distance(fine, coarse), fid, promise * fid);
  const auto got = train::kernel_distance(fine.rows(0, 10), coarse, context_);
  EXPECT_NEAR(got.mean, kid, 10 * promise * kid);  // a difference of numbers ten times as large
}

TEST_P(GoldenInception, pictures_that_shrink__have_the_features_of_the_reference) {
  EXPECT_LE(
      distance("features.large", features("large").span<float>(), golden_["features"]["large"]),
      promise);
}

TEST_P(GoldenInception, device_that_lacks_a_kernel__is_not_blamed_on_the_file) {
  const auto device = std::make_shared<FarDevice>();
  device->kernels = "none";
  const std::string error = error_of([&] {
    train::load_inception(file_, {8, 8, 3}, 1, {.device = device});
  });
  EXPECT_NE(error.find("this device has no kernel for it"), std::string::npos) << error;
  EXPECT_EQ(error.find("not its weights"), std::string::npos) << error;
}

TEST_P(GoldenInception, features_of_full_rank__have_the_distances_of_the_references) {
  const auto plain = [](std::string_view name, double gain, double shift) {
    const Tensor v = hashed(str("plain.", name), {400, 64}, 1);
    Tensor out(DType::f32, v.shape());
    for (size_t i = 0; i < 400 * 64; ++i) {
      const size_t next = i % 64 == 63 ? i - 63 : i + 1;
      const double sum = double{v.span<float>()[i]} + 0.5 * double{v.span<float>()[next]};
      out.span<float>()[i] = static_cast<float>(gain * sum + shift);
    }
    return out;
  };
  const Tensor a = plain("a", 1, 0), b = plain("b", 1.2, 0.1);
  const double fid = golden_["plain"]["fid"], kid = golden_["plain"]["kid"];
  EXPECT_NEAR(train::frechet_distance(a, b), fid, 1e-8 * fid);
  EXPECT_NEAR(train::kernel_distance(a, b, context_).mean, kid, 1e-5 * kid);
}

}  // namespace
}  // namespace ebb::testing::golden_inception_test
