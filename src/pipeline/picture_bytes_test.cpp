#include "pipeline/picture_bytes.h"

#include <gtest/gtest.h>

namespace ebb {
namespace {

std::vector<int> bytes(const std::vector<float>& values, std::string_view dialect) {
  Tensor in(DType::f32, {1, 1, static_cast<int64_t>(values.size()), 1});
  std::ranges::copy(values, in.span<float>().begin());
  const Tensor out = picture_bytes(in, dialect);
  return {out.span<uint8_t>().begin(), out.span<uint8_t>().end()};
}

}  // namespace

// A1111: (255 x).astype(uint8); ComfyUI the same behind a clip; diffusers rounds.
TEST(picture_bytes, fractions__are_cut_off_in_a1111_and_comfy) {
  const std::vector<float> values = {-1.5f, -1, 0, 0.99f, 1, 2};  // 0, 0, 127.5, 253.7, 255, 255
  const std::vector<int> cut = {0, 0, 127, 253, 255, 255}, rounded = {0, 0, 128, 254, 255, 255};
  EXPECT_EQ(bytes(values, "a1111"), cut);
  EXPECT_EQ(bytes(values, "comfy"), cut);
  EXPECT_EQ(bytes(values, "diffusers"), rounded);
  EXPECT_EQ(bytes(values, "ebb"), rounded);
}

TEST(picture_bytes, bytes_that_became_numbers__stay_the_same) {
  std::vector<float> values;
  std::vector<int> all;
  for (int b = 0; b < 256; ++b) {
    values.push_back(static_cast<float>(b) / 127.5f - 1);
    all.push_back(b);
  }
  EXPECT_EQ(bytes(values, "a1111"), all);
  EXPECT_EQ(bytes(values, "ebb"), all);
}

}  // namespace ebb
