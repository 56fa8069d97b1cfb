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

// ---- filling: Pillow's integer arithmetic, which the web UI's picture has

constexpr size_t rgba = 4;

// v / 255 to the nearest, of v up to 255^2.
uint32_t over_255(uint32_t v) {
  v += 128;
  return ((v >> 8) + v) >> 8;
}

// A box whose ends count in part, by shares of 2^24; three are nearly a Gaussian.
struct Box {
  int64_t radius = 0;
  uint64_t inner = 0, ends = 0;
};
constexpr int boxes = 3;
constexpr uint64_t whole_box = 1 << 24;

Box box_of(float deviation) {
  const float variance = deviation * deviation / boxes;
  const auto length = static_cast<float>(std::sqrt(12.0 * double{variance} + 1.0));
  const auto whole = static_cast<float>(std::floor((double{length} - 1.0) / 2.0));
  float part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance);
  part /= 6 * (variance - (whole + 1) * (whole + 1));
  Box out{.radius = static_cast<int64_t>(whole + part)};
  out.inner = static_cast<uint64_t>(static_cast<float>(whole_box) / ((whole + part) * 2 + 1));
  out.ends = (whole_box - static_cast<uint64_t>(2 * out.radius + 1) * out.inner) / 2;
  return out;
}

// Edges go on.
void box_line(uint8_t* line, int64_t n, int64_t stride, const Box& box) {
  std::vector<uint64_t> sums(static_cast<size_t>(n + 1), 0), in(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    in[static_cast<size_t>(i)] = line[i * stride];
    sums[static_cast<size_t>(i + 1)] = sums[static_cast<size_t>(i)] + in[static_cast<size_t>(i)];
  }
  const auto at = [&](int64_t i) {
    return in[static_cast<size_t>(std::clamp<int64_t>(i, 0, n - 1))];
  };
  for (int64_t i = 0; i < n; ++i) {
    const int64_t a = i - box.radius, b = i + box.radius + 1;
    const uint64_t sum = sums[static_cast<size_t>(std::min(b, n))] -
                         sums[static_cast<size_t>(std::max<int64_t>(a, 0))] +
                         static_cast<uint64_t>(std::max<int64_t>(-a, 0)) * in.front() +
                         static_cast<uint64_t>(std::max<int64_t>(b - n, 0)) * in.back();
    line[i * stride] = static_cast<uint8_t>(
        (sum * box.inner + (at(a - 1) + at(b)) * box.ends + whole_box / 2) / whole_box);
  }
}

// Of RGBA.
void soft_blur(std::vector<uint8_t>& image, int64_t height, int64_t width, float deviation) {
  const Box box = box_of(deviation);
  constexpr auto c = static_cast<int64_t>(rgba);
  for (int pass = 0; pass < boxes; ++pass)
    for (int64_t y = 0; y < height; ++y)
      for (int64_t k = 0; k < c; ++k)
        box_line(&image[static_cast<size_t>(y * width * c + k)], width, c, box);
  for (int pass = 0; pass < boxes; ++pass)
    for (int64_t x = 0; x < width * c; ++x)
      box_line(&image[static_cast<size_t>(x)], height, width * c, box);
}

// Lays a pixel, whose colours are multiplied by its opacity, over another, whose are not.
void lay_over(const uint8_t* top, uint8_t* below) {
  const uint32_t opacity = top[3];
  if (opacity == 0) return;
  constexpr uint32_t fine = 7;  // bits beyond 255 * 255
  const uint32_t both = opacity * 255 + below[3] * (255 - opacity);
  const uint32_t upper = (opacity * 255 * 255 << fine) / both, lower = (255 << fine) - upper;
  for (size_t k = 0; k < 3; ++k) {
    const uint32_t colour = std::min(255 * uint32_t{top[k]} / opacity, 255u);
    const uint32_t mixed = colour * upper + below[k] * lower + (128 << fine);
    below[k] = static_cast<uint8_t>(((mixed >> 8) + mixed) >> 8 >> fine);
  }
  below[3] = static_cast<uint8_t>(over_255(both));
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
  const auto pixels = static_cast<size_t>(s[0] * s[1]);
  const auto in = picture.span<uint8_t>(), m = mask.span<uint8_t>();
  // colours times what stays of them, and that
  std::vector<uint8_t> kept(pixels * rgba), out(pixels * rgba, 0);
  for (size_t i = 0; i < pixels; ++i) {
    const auto stays = static_cast<uint8_t>(255 - m[i]);
    for (size_t c = 0; c < 3; ++c)
      kept[i * rgba + c] = static_cast<uint8_t>(over_255(uint32_t{in[i * 3 + c]} * stays));
    kept[i * rgba + 3] = stays;
  }
  constexpr struct {
    float deviation;
    int times;
  } layers[] = {{256, 1}, {64, 1}, {16, 2}, {4, 4}, {2, 2}, {0, 1}};
  for (const auto& layer : layers) {
    std::vector<uint8_t> soft = kept;
    if (layer.deviation > 0) soft_blur(soft, s[0], s[1], layer.deviation);
    for (int k = 0; k < layer.times; ++k)
      for (size_t i = 0; i < pixels; ++i) lay_over(&soft[i * rgba], &out[i * rgba]);
  }
  Tensor result(DType::u8, s);
  for (size_t i = 0; i < pixels; ++i)
    std::copy_n(&out[i * rgba], 3,
                result.span<uint8_t>().begin() + static_cast<std::ptrdiff_t>(i * 3));
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
      if (rule == LatentMaskRule::rounded_bilinear) v = std::nearbyint(v);
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
