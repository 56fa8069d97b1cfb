// The classifier: that it learns, and that it may be interrupted before every batch.
#include "train/classifier.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "support/files.h"

namespace ebb::train {
namespace {

// Grey images of 8 x 8 pixels, all dark or all bright.
class Shades final : public Dataset {
 public:
  Shades() { class_names_ = {"dark", "bright"}; }
  int64_t size() const override { return 40; }
  Shape image_shape() const override { return {8, 8, 1}; }
  int64_t get(int64_t index, uint8_t* pixels) const override {
    std::fill_n(pixels, 64, static_cast<uint8_t>(index % 2 * 200 + index));
    return index % 2;
  }
};

TEST(classifier, every_batch__may_be_its_last) {
  const Shades data;
  const Context cpu = open_context("cpu", {.threads = 2});
  ClassifierConfig config{.width = 4, .features = 8, .epochs = 4, .min_steps = 0, .batch = 16};
  int64_t asked = 0;
  const auto count = [&] { ++asked; };
  const auto quiet = [](std::string_view) {};
  FeatureNet net = train_classifier(data, config, cpu, {quiet, count});
  EXPECT_EQ(asked, 10);  // steps
  asked = 0;
  EXPECT_EQ(class_accuracy(net, data, count), 1);
  EXPECT_EQ(asked, 3);  // 16 + 16 + 8 images

  const auto end = [&] {
    if (++asked == 2) fail("enough");
  };
  asked = 0;
  testing::expect_error([&] { train_classifier(data, config, cpu, {quiet, end}); }, "enough");
  EXPECT_EQ(asked, 2);
  asked = 0;
  testing::expect_error([&] { class_accuracy(net, data, end); }, "enough");
  EXPECT_EQ(asked, 2);

  config.min_steps = 12;  // of small sets
  asked = 0;
  train_classifier(data, config, cpu, {quiet, count});
  EXPECT_EQ(asked, 12);
}

}  // namespace
}  // namespace ebb::train
