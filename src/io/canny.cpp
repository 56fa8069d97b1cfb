#include "io/canny.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/error.h"

namespace ebb::io {
namespace {

struct Gradient {
  int dx = 0, dy = 0;
  int size() const { return std::abs(dx) + std::abs(dy); }
};

// By Sobel's filters; pixels outside of the image are its border's.
Gradient gradient_at(const Tensor& image, int64_t y, int64_t x) {
  const Shape& s = image.shape();
  const uint8_t* data = image.span<uint8_t>().data();
  const int64_t rows[] = {std::max<int64_t>(y - 1, 0), y, std::min(y + 1, s[0] - 1)},
                columns[] = {std::max<int64_t>(x - 1, 0), x, std::min(x + 1, s[1] - 1)};
  Gradient best;
  for (int64_t c = 0; c < s[2]; ++c) {
    const auto at = [&](int i, int j) {
      return int{data[(rows[i] * s[1] + columns[j]) * s[2] + c]};
    };
    const Gradient g{at(0, 2) + 2 * at(1, 2) + at(2, 2) - at(0, 0) - 2 * at(1, 0) - at(2, 0),
                     at(2, 0) + 2 * at(2, 1) + at(2, 2) - at(0, 0) - 2 * at(0, 1) - at(0, 2)};
    if (c == 0 || g.size() > best.size()) best = g;
  }
  return best;
}

class Edges {
 public:
  Edges(const Tensor& image, const Canny& options)
      : height_(image.shape()[0]), width_(image.shape()[1]), options_(options) {
    gradients_.reserve(static_cast<size_t>(height_ * width_));
    for (int64_t y = 0; y < height_; ++y)
      for (int64_t x = 0; x < width_; ++x) gradients_.push_back(gradient_at(image, y, x));
  }

  Tensor find() const {
    Tensor out(DType::u8, {height_, width_, 1});
    const auto edge = out.span<uint8_t>();
    std::vector<bool> candidate(gradients_.size());
    std::vector<int64_t> waiting;
    for (int64_t i = 0; i < height_ * width_; ++i) {
      const Gradient& g = gradients_[static_cast<size_t>(i)];
      if (g.size() <= options_.low || !is_ridge(i / width_, i % width_)) continue;
      candidate[static_cast<size_t>(i)] = true;
      if (g.size() <= options_.high) continue;
      edge[static_cast<size_t>(i)] = 255;
      waiting.push_back(i);
    }
    while (!waiting.empty()) {
      const int64_t i = waiting.back(), y = i / width_, x = i % width_;
      waiting.pop_back();
      for (int64_t v = std::max<int64_t>(y - 1, 0); v <= std::min(y + 1, height_ - 1); ++v)
        for (int64_t u = std::max<int64_t>(x - 1, 0); u <= std::min(x + 1, width_ - 1); ++u) {
          const auto next = static_cast<size_t>(v * width_ + u);
          if (!candidate[next] || edge[next] != 0) continue;
          edge[next] = 255;
          waiting.push_back(v * width_ + u);
        }
    }
    return out;
  }

 private:
  int size(int64_t y, int64_t x) const {
    if (y < 0 || x < 0 || y >= height_ || x >= width_) return 0;
    return gradients_[static_cast<size_t>(y * width_ + x)].size();
  }
  // Whether the gradient is largest across the edge, of four directions. Of two equal ones along a
  // row or a column it is the later.
  bool is_ridge(int64_t y, int64_t x) const {
    constexpr int64_t tangent_22 = 13573, bits = 15;  // tan(22.5 degrees) * 2^15, rounded
    const Gradient& g = gradients_[static_cast<size_t>(y * width_ + x)];
    const int64_t along = std::abs(g.dx), across = int64_t{std::abs(g.dy)} << bits,
                  flat = along * tangent_22, steep = flat + (along << (bits + 1));
    const int m = g.size();
    if (across < flat) return m > size(y, x - 1) && m >= size(y, x + 1);
    if (across > steep) return m > size(y - 1, x) && m >= size(y + 1, x);
    const int64_t s = (g.dx ^ g.dy) < 0 ? -1 : 1;
    return m > size(y - 1, x - s) && m > size(y + 1, x + s);
  }

  int64_t height_, width_;
  Canny options_;
  std::vector<Gradient> gradients_;
};

}  // namespace

Tensor canny(const Tensor& image, const Canny& options) {
  require(image.dtype() == DType::u8 && image.shape().rank() == 3 && image.shape().numel() > 0,
          "canny: the image must be u8 [H,W,C]  ", image.type());
  require(options.low >= 0 && options.low <= options.high, "canny: low (", options.low,
          ") must not be more than high (", options.high, ")");
  return Edges(image, options).find();
}

}  // namespace ebb::io
