// Upscalers: files of every layout, tiles, sizes.
#include "pipeline/upscaler.h"

#include <gtest/gtest.h>

#include <cmath>

#include "diffusion/solver/run.h"
#include "io/safetensors.h"
#include "support/cpu.h"
#include "support/files.h"
#include "support/golden_component.h"
#include "support/golden_distance.h"
#include "support/numbers.h"

namespace ebb::testing::upscaler_test {
namespace {

using Tensors = std::vector<io::NamedTensor>;

using testing::cpu;
using testing::numbers;

Tensors tensors_of(const GoldenComponent& c) {
  Tensors out;
  for (const nn::Weight& w : c.weights())
    out.push_back({w.name, hashed_file_tensor(w.name, nn::file_shape(w))});
  return out;
}

// Under the names of the first ESRGAN, which the golden file has.
Tensors in_first_layout(const GoldenComponent& c) {
  Tensors out = tensors_of(c);
  for (io::NamedTensor& t : out)
    if (c.golden["names"].contains(t.name)) t.name = c.golden["names"][t.name].get<std::string>();
  return out;
}

// Under those of its second release.
Tensors in_trunk_layout(const GoldenComponent& c) {
  Tensors out = tensors_of(c);
  for (io::NamedTensor& t : out)
    for (const auto& [from, to] : {std::pair("conv_body", "trunk_conv"),
                                   {"conv_up", "upconv"},
                                   {"conv_hr", "HRconv"},
                                   {"body.", "RRDB_trunk."},
                                   {".rdb", ".RDB"}})
      if (const size_t at = t.name.find(from); at != std::string::npos)
        t.name.replace(at, std::string(from).size(), to);
  return out;
}

std::string written(const Folder& folder, const Tensors& tensors) {
  const std::string path = folder / "upscaler.safetensors";
  io::write_safetensors(path, tensors);
  return path;
}

Upscaler upscaler_of(const GoldenComponent& c, const UpscaleOptions& options = {}) {
  return {{c.component, c.store()}, cpu(), options};
}

double largest_difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  double worst = 0;
  for (size_t i = 0; i < a.span<float>().size(); ++i)
    worst = std::max(worst, std::abs(double{a.span<float>()[i]} - double{b.span<float>()[i]}));
  return worst;
}

}  // namespace

TEST(upscaler, layouts_of_files__give_the_same_bits) {
  const Folder folder;
  for (const char* name : {"esrgan_x4", "esrgan_x2"}) {
    const GoldenComponent c(name);
    const Tensor image = hashed_input("input.pixels", {1, 8, 12, 3});
    const auto of = [&](const Tensors& tensors) {
      return numbers(Upscaler(load_upscaler(written(folder, tensors)), cpu()).run(image));
    };
    const std::vector<float> want = of(tensors_of(c));
    EXPECT_EQ(want, numbers(upscaler_of(c).run(image))) << name;
    EXPECT_EQ(of(in_first_layout(c)), want) << name;
    EXPECT_EQ(of(in_trunk_layout(c)), want) << name;
    Tensors nested = tensors_of(c);
    for (io::NamedTensor& t : nested) t.name = "params_ema." + t.name;
    EXPECT_EQ(of(nested), want) << name;
  }
}

// A result of this network depends on inputs up to 3 times the 15 convolutions of a block and the
// few around them away, most of it on much nearer ones.
TEST(upscaler, tiles__fade_into_the_whole_picture) {
  for (const auto& [name, width] : {std::pair("esrgan_x2", 150), {"esrgan_compact", 120}}) {
    const GoldenComponent c(name);
    const Tensor image = hashed_input("input.pixels", {1, 50, width, 3});
    const Tensor whole = upscaler_of(c).run(image);
    const Tensor tiles = upscaler_of(c, {.tile = 112, .overlap = 88}).run(image);
    const Tensor seams = upscaler_of(c, {.tile = 32, .overlap = 4}).run(image);
    EXPECT_LT(largest_difference(tiles, whole), 1e-5) << name;
    EXPECT_GT(largest_difference(seams, whole), 1e-4) << name;
  }
}

// [1,H,W,3] from row `y` and column `x` on, which goes on at its opposite side.
Tensor rolled(const Tensor& image, int64_t y, int64_t x) {
  const Shape& s = image.shape();
  Tensor out(DType::f32, s);
  for (int64_t i = 0; i < s[1]; ++i)
    for (int64_t j = 0; j < s[2]; ++j)
      for (int64_t c = 0; c < 3; ++c)
        out.span<float>()[static_cast<size_t>((i * s[2] + j) * 3 + c)] =
            image.span<float>()[static_cast<size_t>(((i + y) % s[1] * s[2] + (j + x) % s[2]) * 3 +
                                                    c)];
  return out;
}

// Of a texture that goes on at its opposite side it matters nowhere where it is cut.
TEST(upscaler, picture_that_is_rolled__gives_the_rolled_picture_with_tiling) {
  for (const char* name : {"esrgan_x2", "esrgan_x4", "esrgan_compact"}) {
    const GoldenComponent c(name);
    const Tensor image = hashed_input("input.pixels", {1, 20, 32, 3});
    const auto difference = [&](Upscaler u, double scale) {
      const Tensor large = u.run(image, scale);
      const auto k = [&](int64_t n) { return std::llround(static_cast<double>(n) * scale); };
      return largest_difference(u.run(rolled(image, 6, 10), scale), rolled(large, k(6), k(10)));
    };
    const auto at = [&](CircularAxes axes) { return upscaler_of(c, {.circular = axes}); };
    const auto scale = static_cast<double>(upscaler_of(c).scale());
    EXPECT_LT(difference(at({.x = true, .y = true}), scale), 1e-5) << name;
    EXPECT_LT(difference(at({.x = true, .y = true}), 1.5), 2.1 / 255) << name;  // in bytes
    EXPECT_GT(difference(at({}), scale), 1e-3) << name;
    EXPECT_GT(difference(at({.x = true}), scale), 1e-3) << name;
    EXPECT_GT(difference(at({.y = true}), scale), 1e-3) << name;
  }
}

TEST(upscaler, tiles__lie_across_the_seams_with_tiling) {
  const GoldenComponent c("esrgan_x2");
  const Tensor image = hashed_input("input.pixels", {1, 130, 150, 3});
  const CircularAxes both{.x = true, .y = true};
  const Tensor whole = upscaler_of(c, {.circular = both}).run(image);
  Upscaler tiles = upscaler_of(c, {.tile = 112, .overlap = 88, .circular = both});
  EXPECT_LT(largest_difference(tiles.run(image), whole), 1e-5);
  EXPECT_LT(largest_difference(tiles.run(rolled(image, 6, 10)), rolled(whole, 12, 20)), 1e-5);
  expect_error(
      [&] {
        tiles.run(hashed_input("input.pixels", {1, 9, 12, 3}));
      },
      "upscale: pictures that go on at their opposite side must have sides that are "
      "multiples of 2");
}

TEST(upscaler, size_that_the_network_does_not_take__is_mirrored_and_cut) {
  const GoldenComponent c("esrgan_x2");
  Upscaler u = upscaler_of(c);
  EXPECT_EQ(u.scale(), 2);
  const Tensor image = hashed_input("input.pixels", {1, 9, 13, 3});
  EXPECT_EQ(u.run(image).shape(), (Shape{1, 18, 26, 3}));
}

TEST(upscaler, other_scales__are_resized_from_what_the_network_makes) {
  const GoldenComponent c("esrgan_x2");
  Upscaler u = upscaler_of(c);
  const Tensor image = hashed_input("input.pixels", {1, 8, 12, 3});
  EXPECT_EQ(u.run(image, 1.5).shape(), (Shape{1, 12, 18, 3}));
  EXPECT_EQ(u.run(image, 3).shape(), (Shape{1, 24, 36, 3}));
  EXPECT_EQ(numbers(u.run(image, 4)), numbers(u.run(u.run(image))));
  expect_error([&] { u.run(image, 17); }, "upscale: the scale must be more than 0 and at most 16");
}

// Within a tile, too: it may take long.
TEST(upscaler, caller_that_says_no__ends_it) {
  const GoldenComponent c("esrgan_compact");
  Upscaler u = upscaler_of(c);
  std::vector<double> shares;
  EXPECT_THROW(u.run(hashed_input("input.pixels", {1, 8, 8, 3}),
                     [&](double share) {
                       shares.push_back(share);
                       return share == 0;
                     }),
               Cancelled);
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_LT(shares[1], 0.5);
  EXPECT_NE(error_of([&] {
              u.run(hashed_input("input.pixels", {1, 8, 8, 3}), [](double) { return false; });
            }),
            "");
}

TEST(upscaler, file_of_another_network__is_an_error_that_names_it) {
  const Folder folder;
  const GoldenComponent c("taesd");
  const std::string file = written(folder, tensors_of(c));
  expect_error([&] { load_upscaler(file); }, "and the file is an autoencoder (taesd), ");
}

}  // namespace ebb::testing::upscaler_test
