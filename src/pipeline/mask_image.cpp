#include "pipeline/mask_image.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "io/pixels.h"
#include "io/resize.h"

namespace ebb {
namespace {

constexpr float white = 255;

int64_t reflected(int64_t i, int64_t n) {
  while (i < 0 || i >= n) i = i < 0 ? -i : 2 * (n - 1) - i;
  return i;
}

// A line of values, `stride` apart.
void blur_line(uint8_t* line, int64_t n, int64_t stride, const std::vector<double>& weights) {
  const auto radius = static_cast<int64_t>(weights.size() / 2);
  if (n == 1) return;
  std::vector<uint8_t> in(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) in[static_cast<size_t>(i)] = line[i * stride];
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int64_t k = -radius; k <= radius; ++k)
      sum +=
          weights[static_cast<size_t>(k + radius)] * in[static_cast<size_t>(reflected(i + k, n))];
    line[i * stride] = static_cast<uint8_t>(std::lround(std::min(sum, 255.0)));
  }
}

// The mean over a box of this radius, whose ends count in part; edges go on.
void box_line(float* line, int64_t n, int64_t stride, double radius) {
  const auto whole = static_cast<int64_t>(radius);
  const double part = radius - static_cast<double>(whole), size = 2 * radius + 1;
  std::vector<double> sums(static_cast<size_t>(n + 1), 0.0);
  for (int64_t i = 0; i < n; ++i)
    sums[static_cast<size_t>(i + 1)] = sums[static_cast<size_t>(i)] + double{line[i * stride]};
  const double first = double{line[0]}, last = double{line[(n - 1) * stride]};
  const auto below = [&](int64_t i) {  // the sum of all before i
    if (i < 0) return static_cast<double>(i) * first;
    if (i > n) return sums.back() + static_cast<double>(i - n) * last;
    return sums[static_cast<size_t>(i)];
  };
  std::vector<float> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t a = i - whole, b = i + whole + 1;
    const double ends = below(a) - below(a - 1) + below(b + 1) - below(b);
    out[static_cast<size_t>(i)] = static_cast<float>((below(b) - below(a) + part * ends) / size);
  }
  for (int64_t i = 0; i < n; ++i) line[i * stride] = out[static_cast<size_t>(i)];
}

// Three boxes, which are nearly a Gaussian of that deviation.
void soft_blur(std::vector<float>& image, int64_t height, int64_t width, int64_t channels,
               double deviation) {
  constexpr int passes = 3;
  const double variance = deviation * deviation / passes;
  const double whole = std::floor((std::sqrt(12 * variance + 1) - 1) / 2);
  const double part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance) /
                      (6 * (variance - (whole + 1) * (whole + 1)));
  for (int pass = 0; pass < passes; ++pass)
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t y = 0; y < height; ++y)
        box_line(&image[static_cast<size_t>(y * width * channels + c)], width, channels,
                 whole + part);
      for (int64_t x = 0; x < width; ++x)
        box_line(&image[static_cast<size_t>(x * channels + c)], height, width * channels,
                 whole + part);
    }
}

// Grows an interval [first, first + length) to `wanted` within [0, limit).
void grow(int64_t& first, int64_t& length, int64_t wanted, int64_t limit) {
  const int64_t more = wanted - length;
  first -= more / 2;
  length = std::min(wanted, limit);
  first = std::clamp<int64_t>(first, 0, limit - length);
}

// One value of a grey picture.
float at(const Tensor& mask, int64_t y, int64_t x) {
  const Shape& s = mask.shape();
  y = std::clamp<int64_t>(y, 0, s[0] - 1), x = std::clamp<int64_t>(x, 0, s[1] - 1);
  return mask.span<uint8_t>()[static_cast<size_t>(y * s[1] + x)];
}

}  // namespace

Tensor inverted(const Tensor& mask) {
  Tensor out = mask.clone();
  for (uint8_t& v : out.span<uint8_t>()) v = static_cast<uint8_t>(255 - v);
  return out;
}

Tensor blurred(const Tensor& mask, int64_t deviation) {
  require(deviation >= 0 && deviation <= 256, "generate: --mask-blur must be 0 to 256 (got ",
          deviation, ")");
  Tensor out = mask.clone();
  if (deviation == 0) return out;
  const auto s = static_cast<double>(deviation);
  const auto radius = static_cast<int64_t>(2.5 * s + 0.5);
  std::vector<double> weights;
  for (int64_t i = -radius; i <= radius; ++i)
    weights.push_back(std::exp(-static_cast<double>(i * i) / (2 * s * s)));
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& w : weights) w /= sum;
  const int64_t h = mask.shape()[0], w = mask.shape()[1];
  uint8_t* v = out.span<uint8_t>().data();
  for (int64_t y = 0; y < h; ++y) blur_line(v + y * w, w, 1, weights);
  for (int64_t x = 0; x < w; ++x) blur_line(v + x, h, w, weights);
  return out;
}

Region masked_region(const Tensor& mask, int64_t padding) {
  const int64_t h = mask.shape()[0], w = mask.shape()[1];
  int64_t left = w, top = h, right = 0, bottom = 0;
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x)
      if (at(mask, y, x) > 0) {
        left = std::min(left, x), right = std::max(right, x + 1);
        top = std::min(top, y), bottom = std::max(bottom, y + 1);
      }
  require(right > 0, "generate: --mask is black: nothing would be generated");
  left = std::max<int64_t>(left - padding, 0), top = std::max<int64_t>(top - padding, 0);
  right = std::min(right + padding, w), bottom = std::min(bottom + padding, h);
  return {left, top, right - left, bottom - top};
}

Region of_ratio(const Region& region, ImageSize run, ImageSize image) {
  Region r = region;
  if (r.width * run.height > run.width * r.height)
    grow(r.top, r.height, r.width * run.height / run.width, image.height);
  else
    grow(r.left, r.width, r.height * run.width / run.height, image.width);
  return r;
}

Tensor cropped(const Tensor& picture, const Region& r) {
  return io::crop(picture, r.top, r.left, r.height, r.width);
}

Tensor filled(const Tensor& picture, const Tensor& mask) {
  const Shape& s = picture.shape();
  constexpr int64_t rgba = 4;
  const auto pixels = static_cast<size_t>(s[0] * s[1]);
  const auto in = picture.span<uint8_t>(), m = mask.span<uint8_t>();
  // colours times what stays of them, and that
  std::vector<float> kept(pixels * rgba), out(pixels * 3, 0.0f);
  for (size_t i = 0; i < pixels; ++i) {
    const float stays = (white - static_cast<float>(m[i])) / white;
    for (size_t c = 0; c < 3; ++c) kept[i * rgba + c] = stays * static_cast<float>(in[i * 3 + c]);
    kept[i * rgba + 3] = stays;
  }
  constexpr struct {
    double deviation;
    int times;
  } layers[] = {{256, 1}, {64, 1}, {16, 2}, {4, 4}, {2, 2}, {0, 1}};
  for (const auto& layer : layers) {
    std::vector<float> soft = kept;
    if (layer.deviation > 0) soft_blur(soft, s[0], s[1], rgba, layer.deviation);
    for (size_t i = 0; i < pixels; ++i)
      for (int k = 0; k < layer.times; ++k)
        for (size_t c = 0; c < 3; ++c)
          out[i * 3 + c] = soft[i * rgba + c] + out[i * 3 + c] * (1 - soft[i * rgba + 3]);
  }
  Tensor result(DType::u8, s);
  std::ranges::transform(out, result.span<uint8_t>().begin(), [](float v) {
    return static_cast<uint8_t>(std::lround(std::clamp(v, 0.0f, white)));
  });
  return result;
}

Tensor latent_mask(const Tensor& mask, ImageSize latents, LatentMaskRule rule) {
  const int64_t h = latents.height, w = latents.width;
  Tensor out(DType::f32, {1, h, w, 1});
  const auto to = out.span<float>();
  if (rule == LatentMaskRule::rounded_bicubic) {
    const Tensor small = io::resize(mask, h, w, io::ResizeFilter::bicubic);
    std::ranges::transform(small.span<uint8_t>(), to.begin(),
                           [](uint8_t v) { return std::nearbyint(static_cast<float>(v) / white); });
    return out;
  }
  const float down = static_cast<float>(mask.shape()[0]) / static_cast<float>(h),
              across = static_cast<float>(mask.shape()[1]) / static_cast<float>(w);
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x) {
      float& v = to[static_cast<size_t>(y * w + x)];
      const auto fy = static_cast<float>(y), fx = static_cast<float>(x);
      if (rule == LatentMaskRule::nearest) {
        v = at(mask, static_cast<int64_t>(fy * down), static_cast<int64_t>(fx * across)) >= 127.5f;
        continue;
      }
      const float cy = std::max((fy + 0.5f) * down - 0.5f, 0.0f),
                  cx = std::max((fx + 0.5f) * across - 0.5f, 0.0f);
      const auto iy = static_cast<int64_t>(cy), ix = static_cast<int64_t>(cx);
      const float py = cy - static_cast<float>(iy), px = cx - static_cast<float>(ix);
      const float above = at(mask, iy, ix) * (1 - px) + at(mask, iy, ix + 1) * px,
                  below = at(mask, iy + 1, ix) * (1 - px) + at(mask, iy + 1, ix + 1) * px;
      v = (above * (1 - py) + below * py) / white;
    }
  return out;
}

Tensor overlaid(const Tensor& pixels, const Tensor& picture, const Tensor& mask) {
  Tensor out(DType::f32, pixels.shape());
  const auto made = pixels.span<float>(), to = out.span<float>();
  const auto base = picture.span<uint8_t>(), m = mask.span<uint8_t>();
  for (size_t i = 0; i < to.size(); ++i) {
    const float share = static_cast<float>(m[i / 3]) / white;
    const float own = io::signed_pixel(base[i]);
    to[i] = m[i / 3] == 0 ? own : share * made[i] + (1 - share) * own;
  }
  return out;
}

}  // namespace ebb
