// Held-out images: how many, which ones, and what is measured on them.
#include "train/validation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "io/safetensors.h"
#include "support/files.h"

namespace ebb::train {
namespace {

using testing::expect_error;
using testing::Folder;

TEST(validation, number_of_images__is_a_count_a_share_or_fits_the_set) {
  EXPECT_EQ(held_out_count("off", 1000, 0), 0);
  EXPECT_EQ(held_out_count("auto", 99, 0), 0);  // a small set trains whole
  EXPECT_EQ(held_out_count("auto", 100, 0), 5);
  EXPECT_EQ(held_out_count("auto", 60000, 0), 256);
  EXPECT_EQ(held_out_count("auto", 60000, 10000), 256);
  EXPECT_EQ(held_out_count("auto", 60000, 20), 20);
  EXPECT_EQ(held_out_count("7", 8, 0), 7);
  EXPECT_EQ(held_out_count("5%", 30, 0), 1);
  EXPECT_EQ(held_out_count("0.1%", 30, 0), 1);
  EXPECT_EQ(held_out_count("0%", 30, 0), 0);
  EXPECT_EQ(held_out_count("50%", 30, 10), 5);
  for (const char* wrong : {"8", "-1", "100%", "-3%", "many", "", "5 %", "nan%"})
    expect_error([&] { held_out_count(wrong, 8, 0); }, "validation");
  expect_error([] { held_out_count("11", 8, 10); }, "(11 of 10 in the test split)");
}

std::unique_ptr<Dataset> numbered(const std::string& path, int64_t n) {
  Tensor images(DType::u8, {n, 1, 1, 1}), labels(DType::i64, {n});
  for (int64_t i = 0; i < n; ++i) {
    images.span<uint8_t>()[static_cast<size_t>(i)] = static_cast<uint8_t>(i);
    labels.span<int64_t>()[static_cast<size_t>(i)] = i / 10;
  }
  const io::NamedTensor file[] = {{"images", images}, {"labels", labels}};
  io::write_safetensors(path, file);
  return open_dataset(path);
}

std::vector<int> pixels_of(const Dataset& data) {
  std::vector<int> out;
  for (int64_t i = 0; i < data.size(); ++i) {
    uint8_t pixel = 0;
    data.get(i, &pixel);
    out.push_back(pixel);
  }
  return out;
}

TEST(validation, held_out_images__are_spread_and_the_others_keep_their_order) {
  const Folder folder;
  const std::string path = folder / "data.safetensors";
  const HeldOut two = hold_out(numbered(path, 40), path, {}, "10%");
  EXPECT_EQ(pixels_of(*two.validation), (std::vector<int>{0, 10, 20, 30}));
  const std::vector<int> rest = pixels_of(*two.training);
  EXPECT_EQ(rest.size(), 36u);
  EXPECT_TRUE(std::ranges::is_sorted(rest));
  EXPECT_EQ(std::set<int>(rest.begin(), rest.end()).count(20), 0u);
  EXPECT_EQ(two.training->classes(), 4);
  EXPECT_EQ(two.validation->classes(), 4);
  EXPECT_NE(two.note.find("4 of 40 images are held out"), std::string::npos) << two.note;
  expect_error([&] { two.training->get(36, nullptr); }, "index out of range (36 of 36)");
  const HeldOut one = hold_out(numbered(path, 40), path, {}, "off");
  EXPECT_EQ(one.validation, nullptr);
  EXPECT_EQ(one.training->size(), 40);
}

TEST(validation, items__fill_batches_with_further_noise) {
  const Folder folder;
  const auto data = numbered(folder / "data.safetensors", 3);
  const Validation v = validation_of(*data, {.batch = 16, .accumulation = 2});
  EXPECT_EQ(v.batches, 8);  // 64 items
  const NamedTensors b = v.batch(1);
  EXPECT_EQ(b.at("image").span<int64_t>()[2], 10);                // the number of the noise
  EXPECT_EQ(b.at("images").span<float>()[2], 1 / 127.5f - 1.0f);  // of image 10 % 3
  EXPECT_FALSE(b.contains("augment"));
  EXPECT_TRUE(validation_of(*data, {.batch = 8, .augment = 0.1}).batch(0).contains("augment"));
  EXPECT_EQ(v.every, 300);
  EXPECT_EQ(validation_of(*data, {.batch = 8, .validation_every = 7}).every, 7);
}

}  // namespace
}  // namespace ebb::train
