#include "pipeline/preview.h"

#include <Eigen/Dense>
#include <algorithm>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "io/resize.h"

namespace ebb {
namespace {

// Fields of one value are so wide that a decoder sees none of their neighbours in the middle.
constexpr int64_t field = 4, side = 32;

// Normal numbers, as latents have them, the same in a field.
Tensor fields_of(int64_t channels) {
  Tensor out(DType::f32, {1, side, side, channels});
  float* to = out.span<float>().data();
  const int64_t fields = side / field;
  std::vector<float> values(static_cast<size_t>(fields * fields * channels));
  fill_normal({.use = random_use("preview")}, 0, values);
  for (int64_t y = 0; y < side; ++y)
    for (int64_t x = 0; x < side; ++x)
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t index = (y / field * fields + x / field) * channels + c;
        *to++ = values[static_cast<size_t>(index)];
      }
  return out;
}

// rows of (latent, 1) and the colours in the middle of each field
Eigen::MatrixXd affine_of(const Decoder& decoder, int64_t channels) {
  const Tensor latents = fields_of(channels);
  const Tensor pixels = decoder.decode(latents.clone());
  const int64_t fields = side / field, factor = pixels.shape()[1] / side;
  const int64_t from = field * factor / 4, count = std::max<int64_t>(field * factor / 2, 1);
  const float *z = latents.span<float>().data(), *p = pixels.span<float>().data();
  Eigen::MatrixXd a(fields * fields, channels + 1), b(fields * fields, 3);
  b.setZero();
  for (int64_t row = 0; row < fields * fields; ++row) {
    const int64_t y = row / fields * field, x = row % fields * field;
    for (int64_t c = 0; c < channels; ++c)
      a(row, c) = static_cast<double>(z[(y * side + x) * channels + c]);
    a(row, channels) = 1;
    for (int64_t i = 0; i < count * count; ++i) {
      const int64_t py = y * factor + from + i / count, px = x * factor + from + i % count;
      for (int64_t c = 0; c < 3; ++c)
        b(row, c) += static_cast<double>(p[(py * side * factor + px) * 3 + c]);
    }
    b.row(row) /= static_cast<double>(count * count);
  }
  return (a.transpose() * a).ldlt().solve(a.transpose() * b);
}

}  // namespace

Preview linear_preview(const Decoder& decoder, int64_t channels) {
  const auto map = std::make_shared<const Eigen::MatrixXd>(affine_of(decoder, channels));
  return [=](const Tensor& latents) {
    const Shape& s = latents.shape();
    require(s.rank() == 4 && s[3] == channels, "preview: latents must be [N,h,w,", channels, "]  ",
            latents.type());
    Tensor out(DType::f32, {s[0], s[1], s[2], 3});
    const float* z = latents.span<float>().data();
    float* to = out.span<float>().data();
    for (int64_t i = 0; i < s[0] * s[1] * s[2]; ++i, z += channels)
      for (int64_t c = 0; c < 3; ++c) {
        double sum = (*map)(channels, c);
        for (int64_t k = 0; k < channels; ++k) sum += (*map)(k, c) * static_cast<double>(z[k]);
        *to++ = static_cast<float>(std::clamp(sum, -1.0, 1.0));
      }
    return out;
  };
}

std::string terminal_text(const Tensor& image, int64_t columns) {
  const Shape& s = image.shape();
  require(image.dtype() == DType::u8 && s.rank() == 3 && s[2] == 3 && columns > 0,
          "preview: a terminal shows u8 [H,W,3]  ", image.type());
  const int64_t width = std::min(columns, s[1]);
  const int64_t rows = std::max<int64_t>((s[0] * width / s[1] + 1) / 2, 1);
  const Tensor small = io::resize(image, 2 * rows, width, io::ResizeFilter::box);
  const uint8_t* p = small.span<uint8_t>().data();
  const auto colour = [&](int64_t y, int64_t x) {
    const uint8_t* at = p + (y * width + x) * 3;
    return str(int{at[0]}, ';', int{at[1]}, ';', int{at[2]});
  };
  std::string out;
  for (int64_t y = 0; y < 2 * rows; y += 2) {
    for (int64_t x = 0; x < width; ++x)
      out += str("\033[38;2;", colour(y, x), "m\033[48;2;", colour(y + 1, x), "m\u2580");
    out += "\033[0m\n";
  }
  return out;
}

}  // namespace ebb
