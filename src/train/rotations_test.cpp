#include "train/rotations.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace ebb::train {
namespace {

class One final : public Dataset {
 public:
  One(Shape shape, std::vector<uint8_t> pixels)
      : shape_(std::move(shape)), pixels_(std::move(pixels)) {}
  int64_t size() const override { return 1; }
  Shape image_shape() const override { return shape_; }
  int64_t get(int64_t, uint8_t* pixels) const override {
    std::ranges::copy(pixels_, pixels);
    return 0;
  }

 private:
  Shape shape_;
  std::vector<uint8_t> pixels_;
};

TEST(Rotations, quarter_turns__are_clockwise_and_labelled) {
  const One one({2, 2, 1}, {1, 2, 3, 4});
  const Rotations r(one);
  ASSERT_EQ(r.size(), 4);
  ASSERT_EQ(r.classes(), 4);
  const std::vector<uint8_t> want[] = {{1, 2, 3, 4}, {3, 1, 4, 2}, {4, 3, 2, 1}, {2, 4, 1, 3}};
  for (int64_t i = 0; i < 4; ++i) {
    std::vector<uint8_t> got(4);
    std::vector<float> wide(4);
    EXPECT_EQ(r.get(i, got.data()), i);
    EXPECT_EQ(got, want[i]) << i;
    EXPECT_EQ(r.get_f32(i, wide.data()), i);
    for (size_t k = 0; k < 4; ++k) EXPECT_FLOAT_EQ(wide[k], want[i][k] / 127.5f - 1);
  }
}

TEST(Rotations, oblong_images__are_refused) {
  const One one({1, 2, 1}, {1, 2});
  EXPECT_THROW(Rotations{one}, Error);
}

}  // namespace
}  // namespace ebb::train
