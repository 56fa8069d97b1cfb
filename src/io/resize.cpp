#include "io/resize.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace ebb::io {
namespace {

void check_image(const Tensor& image, std::string_view op) {
  const Shape& s = image.shape();
  require(image.dtype() == DType::u8 && s.rank() == 3 && s.numel() > 0, op,
          ": needs a non-empty u8[H,W,C]  ", image.type());
}

double sinc(double x) {
  const double t = std::numbers::pi * x;
  return std::fabs(t) < 1e-9 ? 1.0 : std::sin(t) / t;
}

// The weight of the input sample whose centre lies `x` from the output's, both in input pixels, for
// outputs `scale` input pixels wide.
double weight(ResizeFilter filter, double x, double scale) {
  if (filter == ResizeFilter::box)
    return std::max(0.0, std::min(x + 0.5, scale / 2) - std::max(x - 0.5, -scale / 2));
  const double t = x / std::max(scale, 1.0);
  if (filter == ResizeFilter::bicubic) {
    const double d = std::fabs(t);
    if (d < 1) return (1.5 * d - 2.5) * d * d + 1;
    return d < 2 ? ((-0.5 * d + 2.5) * d - 4) * d + 2 : 0.0;
  }
  return std::fabs(t) < 3.0 ? sinc(t) * sinc(t / 3.0) : 0.0;
}

// One output sample: the weighted sum of `weights.size()` input samples from `first` on; on a
// circle those behind the last one are the first ones again.
struct Tap {
  int64_t first = 0;
  std::vector<float> weights;
};

std::vector<Tap> taps(int64_t from, int64_t to, ResizeFilter filter, bool circular) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double lobes = filter == ResizeFilter::bicubic ? 2.0 : 3.0;
  const double support = filter == ResizeFilter::box ? scale / 2 : lobes * std::max(scale, 1.0);
  std::vector<Tap> out(static_cast<size_t>(to));
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    Tap& tap = out[static_cast<size_t>(i)];
    int64_t first = std::llround(std::floor(centre - support)),
            last = std::llround(std::ceil(centre + support));
    if (!circular)
      first = std::clamp<int64_t>(first, 0, from - 1),
      last = std::clamp<int64_t>(last, first + 1, from);
    const int64_t turns = first < 0 ? (from - 1 - first) / from : 0;
    tap.first = (first + turns * from) % from;
    std::vector<double> w;
    double sum = 0;
    for (int64_t j = first; j < last; ++j) {
      w.push_back(weight(filter, static_cast<double>(j) + 0.5 - centre, scale));
      sum += w.back();
    }
    for (const double v : w) tap.weights.push_back(static_cast<float>(v / sum));
  }
  return out;
}

uint8_t rounded(float v) { return static_cast<uint8_t>(std::clamp(v, 0.0f, 255.0f) + 0.5f); }

// [H,W,C] -> [H,width,C].
std::vector<uint8_t> resize_rows(const Tensor& image, const std::vector<Tap>& columns) {
  const int64_t h = image.shape()[0], w = image.shape()[1], c = image.shape()[2];
  const uint8_t* in = image.span<uint8_t>().data();
  std::vector<uint8_t> out(static_cast<size_t>(h * c) * columns.size());
  uint8_t* o = out.data();
  int64_t read = w;  // of a row, those of a circle behind the last one with them
  for (const Tap& tap : columns) read = std::max(read, tap.first + std::ssize(tap.weights));
  std::vector<uint8_t> row(static_cast<size_t>(read * c));
  for (int64_t y = 0; y < h; ++y) {
    for (int64_t x = 0; x < read; x += w)
      std::copy_n(in + y * w * c, std::min(w, read - x) * c, row.data() + x * c);
    for (const Tap& tap : columns)
      for (int64_t k = 0; k < c; ++k) {
        const uint8_t* p = row.data() + tap.first * c + k;
        float sum = 0;
        for (const float weight : tap.weights) {
          sum += weight * static_cast<float>(*p);
          p += c;
        }
        *o++ = rounded(sum);
      }
  }
  return out;
}

}  // namespace

Tensor resize(const Tensor& image, int64_t height, int64_t width, ResizeFilter filter,
              CircularSides circular) {
  check_image(image, "resize");
  require(height > 0 && width > 0, "resize: sizes must be positive (", width, "x", height, ")");
  const int64_t c = image.shape()[2];
  if (image.shape()[0] == height && image.shape()[1] == width) return image.clone();
  const int64_t h = image.shape()[0];
  const std::vector<uint8_t> narrow =
      resize_rows(image, taps(image.shape()[1], width, filter, circular.x));
  const std::vector<Tap> rows = taps(h, height, filter, circular.y);
  Tensor out(DType::u8, {height, width, c});
  const size_t line = static_cast<size_t>(width * c);
  std::vector<float> sum(line);
  uint8_t* o = out.span<uint8_t>().data();
  for (const Tap& tap : rows) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    int64_t y = tap.first;
    for (const float weight : tap.weights) {
      const uint8_t* in = narrow.data() + static_cast<size_t>(y++ % h) * line;
      for (size_t i = 0; i < line; ++i) sum[i] += weight * static_cast<float>(in[i]);
    }
    for (const float v : sum) *o++ = rounded(v);
  }
  return out;
}

Tensor crop(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width) {
  check_image(image, "crop");
  const int64_t h = image.shape()[0], w = image.shape()[1], c = image.shape()[2];
  require(
      top >= 0 && left >= 0 && height > 0 && width > 0 && top + height <= h && left + width <= w,
      "crop: must lie in the image (", width, "x", height, " at ", left, ",", top, ")  ",
      image.shape());
  Tensor out(DType::u8, {height, width, c});
  const uint8_t* in = image.span<uint8_t>().data();
  uint8_t* o = out.span<uint8_t>().data();
  for (int64_t y = 0; y < height; ++y)
    std::copy_n(in + ((top + y) * w + left) * c, width * c, o + y * width * c);
  return out;
}

Tensor centre_crop(const Tensor& image) {
  check_image(image, "centre_crop");
  const int64_t h = image.shape()[0], w = image.shape()[1], side = std::min(h, w);
  return h == w ? image : crop(image, (h - side) / 2, (w - side) / 2, side, side);
}

Tensor square(const Tensor& image, int64_t size, ResizeFilter filter) {
  return resize(centre_crop(image), size, size, filter);
}

}  // namespace ebb::io
