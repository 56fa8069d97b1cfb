#include "train/augment.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"

namespace ebb::train {
namespace {

// The scaling filter of the symlet sym6: the even shifts of it are orthonormal, the sum is sqrt(2).
constexpr std::array<double, 12> wavelet{
    0.015404109327027373,  0.0034907120842174702, -0.11799011114819057,  -0.048311742585633,
    0.4910559419267466,    0.787641141030194,     0.3379294217276218,    -0.07263752278646252,
    -0.021060292512300564, 0.04472490177066578,   0.0017677118642428036, -0.007800708325034148};
constexpr int64_t taps = wavelet.size();
constexpr int64_t centre = 5;  // sample k of the image reaches samples 2k-5 .. 2k+6 of the double

// Where the filter's weight lies: sample m of the double stands at (m + centre - delay) / 2.
constexpr double delay = [] {
  double sum = 0, moment = 0;
  for (int64_t j = 0; j < taps; ++j) {
    sum += wavelet[j];
    moment += static_cast<double>(j) * wavelet[j];
  }
  return moment / sum;
}();

// The index of a sample beyond the borders: 2 1 | 0 1 2 | 1 0.
int64_t reflect(int64_t i, int64_t n) {
  if (n == 1) return 0;
  const int64_t period = 2 * (n - 1);
  i = ((i % period) + period) % period;
  return i < n ? i : period - i;
}

// Samples first .. first + n - 1 of a doubled axis.
struct Range {
  int64_t first = 0, n = 0;
};

// Rows of `width` values each; the rows are the axis that filters run along.
struct Rows {
  std::vector<float> values;
  size_t width = 0;
  float* at(int64_t i) { return values.data() + static_cast<size_t>(i) * width; }
  const float* at(int64_t i) const { return values.data() + static_cast<size_t>(i) * width; }
};

Rows zero_rows(int64_t n, size_t width) {
  return {std::vector<float>(static_cast<size_t>(n) * width), width};
}

void add_scaled(float* to, const float* from, double factor, size_t n) {
  const float f = static_cast<float>(factor);
  for (size_t i = 0; i < n; ++i) to[i] += f * from[i];
}

// The doubled axis on `range`; the input continues by reflection.
Rows double_rows(const Rows& in, int64_t n, Range range) {
  Rows out = zero_rows(range.n, in.width);
  for (int64_t i = 0; i < range.n; ++i) {
    const int64_t m = range.first + i + centre;
    for (int64_t j = m & 1; j < taps; j += 2)
      add_scaled(out.at(i), in.at(reflect((m - j) / 2, n)), wavelet[static_cast<size_t>(j)],
                 in.width);
  }
  return out;
}

// The adjoint: n rows from rows -centre .. of a doubled axis.
Rows halve_rows(const Rows& in, int64_t n) {
  Rows out = zero_rows(n, in.width);
  for (int64_t k = 0; k < n; ++k)
    for (int64_t j = 0; j < taps; ++j)
      add_scaled(out.at(k), in.at(2 * k + j), wavelet[static_cast<size_t>(j)], in.width);
  return out;
}

// [rows, columns, C] -> [columns, rows, C].
Rows transposed(const Rows& in, int64_t rows, int64_t channels) {
  const int64_t columns = static_cast<int64_t>(in.width) / channels;
  Rows out = zero_rows(columns, static_cast<size_t>(rows * channels));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      std::copy_n(in.at(r) + c * channels, channels, out.at(c) + r * channels);
  return out;
}

struct Matrix {  // 2x2
  double xx = 1, xy = 0, yx = 0, yy = 1;
};
Matrix operator*(const Matrix& a, const Matrix& b) {
  return {a.xx * b.xx + a.xy * b.yx, a.xx * b.xy + a.xy * b.yy, a.yx * b.xx + a.yy * b.yx,
          a.yx * b.xy + a.yy * b.yy};
}
Matrix rotation(double t) { return {std::cos(t), -std::sin(t), std::sin(t), std::cos(t)}; }

// Where in the doubled input the sample (x, y) of the doubled output lies.
struct Warp {
  Matrix m;
  double x0 = 0, y0 = 0;
  double x(double u, double v) const { return m.xx * u + m.xy * v + x0; }
  double y(double u, double v) const { return m.yx * u + m.yy * v + y0; }
};

// Factors stay within 1/4 .. 4, ten standard deviations at the defaults: this bounds the memory.
double factor(double octaves) { return std::exp2(std::clamp(octaves, -2.0, 2.0)); }

Warp warp_of(const Augmentation& a, const AugmentOptions& o, const Shape& shape) {
  const double s = factor(a.scale * o.scale_std), r = factor(a.aniso * o.aniso_std);
  const Matrix m = Matrix{1 / s, 0, 0, 1 / s} * rotation(a.angle) * rotation(-a.aniso_angle) *
                   Matrix{1 / r, 0, 0, r} * rotation(a.aniso_angle);
  const double h = static_cast<double>(shape[0]), w = static_cast<double>(shape[1]);
  // Turning is about the middle of the image, which on the doubled axis is here:
  const double mid_x = (w - 1) - centre + delay, mid_y = (h - 1) - centre + delay;
  const double tx = mid_x + 2 * a.shift_x * o.translate * w;
  const double ty = mid_y + 2 * a.shift_y * o.translate * h;
  Warp warp{m};
  warp.x0 = mid_x - m.xx * tx - m.xy * ty;
  warp.y0 = mid_y - m.yx * tx - m.yy * ty;
  return warp;
}

// The doubled input's samples that the doubled output's corners reach along one axis.
Range reach(double a, double b, double c, double d) {
  const double low = std::floor(std::min({a, b, c, d})), high = std::floor(std::max({a, b, c, d}));
  return {static_cast<int64_t>(low), static_cast<int64_t>(high - low) + 2};
}

// Bilinear samples of `in` (rows from ry.first, columns from rx.first) at the warped places.
Rows sample(const Rows& in, Range ry, Range rx, const Warp& warp, const Shape& shape) {
  const int64_t c = shape[2], height = 2 * shape[0] + taps - 2, width = 2 * shape[1] + taps - 2;
  Rows out = zero_rows(height, static_cast<size_t>(width * c));
  for (int64_t v = 0; v < height; ++v)
    for (int64_t u = 0; u < width; ++u) {
      const double du = static_cast<double>(u - centre), dv = static_cast<double>(v - centre);
      const double x = warp.x(du, dv) - static_cast<double>(rx.first);
      const double y = warp.y(du, dv) - static_cast<double>(ry.first);
      const int64_t ix = std::clamp<int64_t>(static_cast<int64_t>(x), 0, rx.n - 2);
      const int64_t iy = std::clamp<int64_t>(static_cast<int64_t>(y), 0, ry.n - 2);
      const float fx = static_cast<float>(x - static_cast<double>(ix));
      const float fy = static_cast<float>(y - static_cast<double>(iy));
      const float* top = in.at(iy) + ix * c;
      const float* bottom = in.at(iy + 1) + ix * c;
      float* to = out.at(v) + u * c;
      for (int64_t k = 0; k < c; ++k) {
        const float upper = top[k] + fx * (top[k + c] - top[k]);
        const float lower = bottom[k] + fx * (bottom[k + c] - bottom[k]);
        to[k] = upper + fy * (lower - upper);
      }
    }
  return out;
}

void warp_image(const Warp& warp, const Shape& shape, Rows& image, float* out) {
  const int64_t h = shape[0], w = shape[1], c = shape[2];
  const double left = -centre, top = -centre;
  const double right = static_cast<double>(2 * w + taps - 3 - centre);
  const double bottom = static_cast<double>(2 * h + taps - 3 - centre);
  const Range rx =
      reach(warp.x(left, top), warp.x(right, top), warp.x(left, bottom), warp.x(right, bottom));
  const Range ry =
      reach(warp.y(left, top), warp.y(right, top), warp.y(left, bottom), warp.y(right, bottom));
  const Rows wide = transposed(double_rows(transposed(image, h, c), w, rx), rx.n, c);
  const Rows sampled = sample(double_rows(wide, h, ry), ry, rx, warp, shape);
  const Rows low = halve_rows(sampled, h);  // [h, 2w+10, c]
  const Rows small = transposed(halve_rows(transposed(low, h, c), w), w, c);
  std::ranges::copy(small.values, out);
}

}  // namespace

void check(const AugmentOptions& o) {
  const auto within = [](const char* name, double v, double most) {
    require(v >= 0 && v <= most, "augment: ", name, " must be 0 to ", most, " (", v, ")");
  };
  within("p", o.p, 1);
  within("scale_std", o.scale_std, 1);
  within("rotate", o.rotate, 1);
  within("aniso_std", o.aniso_std, 1);
  within("translate", o.translate, 0.5);
}

Augmentation draw_augmentation(const AugmentOptions& o, uint64_t seed, int64_t position) {
  const RandomKey key{seed, static_cast<uint64_t>(position), 0,
                      static_cast<uint32_t>(fnv1a("augment"))};
  const Philox chance = random_block(key, 0), more = random_block(key, 1);
  const Philox normal = random_block(key, 2), angle = random_block(key, 3);
  const auto happens = [&](uint32_t word) { return uniform_from(word) < o.p; };
  const auto half_turns = [&](uint32_t word) {
    return (2.0 * uniform_from(word) - 1.0) * std::numbers::pi;
  };
  Augmentation a;
  a.flip_x = more[1] & 1;
  a.flip_y = happens(chance[0]) && (more[1] & 2);
  if (happens(chance[1])) a.scale = normals_from(normal[0], normal[1])[0];
  if (happens(chance[2])) a.angle = half_turns(angle[0]) * o.rotate;
  if (happens(chance[3])) {
    a.aniso = normals_from(normal[0], normal[1])[1];
    a.aniso_angle = half_turns(angle[1]);
  }
  if (happens(more[0])) {
    const auto shift = normals_from(normal[2], normal[3]);
    a.shift_x = shift[0];
    a.shift_y = shift[1];
  }
  return a;
}

std::array<float, augment_labels> labels_of(const Augmentation& a) {
  const auto f = [](double v) { return static_cast<float>(v); };
  return {f(a.flip_x),
          f(a.flip_y),
          f(a.scale),
          f(std::cos(a.angle) - 1),
          f(std::sin(a.angle)),
          f(a.aniso * std::cos(a.aniso_angle)),
          f(a.aniso * std::sin(a.aniso_angle)),
          f(a.shift_x),
          f(a.shift_y)};
}

void augment(const Augmentation& a, const AugmentOptions& options, const Shape& shape,
             const float* in, float* out) {
  const int64_t h = shape[0], w = shape[1], c = shape[2];
  Rows image = zero_rows(h, static_cast<size_t>(w * c));
  for (int64_t y = 0; y < h; ++y) {
    const float* from = in + (a.flip_y ? h - 1 - y : y) * w * c;
    for (int64_t x = 0; x < w; ++x)
      std::copy_n(from + (a.flip_x ? w - 1 - x : x) * c, c, image.at(y) + x * c);
  }
  const bool moves =
      a.scale != 0 || a.angle != 0 || a.aniso != 0 || a.shift_x != 0 || a.shift_y != 0;
  if (moves) {
    warp_image(warp_of(a, options, shape), shape, image, out);
  } else {
    std::ranges::copy(image.values, out);
  }
}

}  // namespace ebb::train
