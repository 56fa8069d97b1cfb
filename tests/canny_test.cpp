// Edges against OpenCV's (tools/golden/canny_golden.py).
#include "io/canny.h"

#include <gtest/gtest.h>

#include "support/files.h"
#include "support/golden_file.h"

namespace ebb::testing::canny_test {
namespace {

Tensor picture(int64_t height, int64_t width, int64_t channels, int64_t seed) {
  Tensor out(DType::u8, {height, width, channels});
  uint8_t* to = out.span<uint8_t>().data();
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t v = y - height / 3, u = x - width / 2;
        const int64_t b = (y * (2 + seed) + x * 3 + c * 40) % 97;
        *to++ =
            static_cast<uint8_t>(((v * v + u * u) * 3 / (1 + seed) + b + c * (x / 4) * 9) % 256);
      }
  return out;
}

// A row as the golden file has it: a number whose bits are its pixels.
std::string row_text(const uint8_t* row, int64_t width) {
  std::string digits;
  int value = 0;
  for (int64_t i = 0; i < width; ++i) {
    value = 2 * value + (row[i] != 0 ? 1 : 0);
    if ((width - 1 - i) % 4 != 0) continue;
    if (value != 0 || !digits.empty()) digits += "0123456789abcdef"[value];
    value = 0;
  }
  return digits.empty() ? "0" : digits;
}

}  // namespace

TEST(canny, edges__are_opencvs_pixel_for_pixel) {
  for (const nlohmann::json& c : read_golden("canny")["cases"]) {
    const int64_t height = c["height"], width = c["width"];
    const Tensor edges = io::canny(picture(height, width, c["channels"], c["seed"]),
                                   {.low = c["low"], .high = c["high"]});
    ASSERT_EQ(edges.shape(), (Shape{height, width, 1}));
    std::string rows;
    for (int64_t y = 0; y < height; ++y)
      rows += (y > 0 ? " " : "") + row_text(edges.span<uint8_t>().data() + y * width, width);
    EXPECT_EQ(rows, c["rows"].get<std::string>()) << c["channels"] << " channels, low " << c["low"];
  }
}

TEST(canny, low_above_high__is_an_error) {
  expect_error(
      [] {
        io::canny(Tensor(DType::u8, {2, 2, 1}), {.low = 5, .high = 4});
      },
      "canny: low (5) must not be more than high (4)");
}

}  // namespace ebb::testing::canny_test
