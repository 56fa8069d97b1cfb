// Colour spaces of curves and a matrix to sRGB. ICC.1:2022, 7.2, 9.2, 10.6, 10.18, 10.31; the curve
// of sRGB: IEC 61966-2-1.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "io/image_metadata.h"

namespace ebb::io {
namespace {

using Vector = std::array<double, 3>;
using Matrix = std::array<Vector, 3>;  // rows

Vector operator*(const Matrix& m, const Vector& v) {
  Vector out{};
  for (size_t i = 0; i < 3; ++i)
    for (size_t k = 0; k < 3; ++k) out[i] += m[i][k] * v[k];
  return out;
}

Matrix operator*(const Matrix& a, const Matrix& b) {
  Matrix out{};
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 3; ++j)
      for (size_t k = 0; k < 3; ++k) out[i][j] += a[i][k] * b[k][j];
  return out;
}

Matrix diagonal(const Vector& v) { return {{{v[0], 0, 0}, {0, v[1], 0}, {0, 0, v[2]}}}; }

Matrix inverse(const Matrix& m) {
  Matrix out{};
  double det = 0;
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 3; ++j) {
      const size_t a = (j + 1) % 3, b = (j + 2) % 3, c = (i + 1) % 3, d = (i + 2) % 3;
      out[i][j] = m[a][c] * m[b][d] - m[a][d] * m[b][c];
      if (i == 0) det += m[j][0] * out[0][j];
    }
  require(std::abs(det) > 1e-9, "the primaries lie on a line");
  for (Vector& row : out)
    for (double& v : row) v /= det;
  return out;
}

// XYZ of light of chromaticity x, y and Y = 1.
Vector light(double x, double y) {
  require(std::abs(y) > 1e-9, "a primary has no light");
  return {x / y, 1, (1 - x - y) / y};
}

// From linear RGB to XYZ adapted to D50 as profiles have it (Bradford).
Matrix to_d50(const double (&xy)[8]) {
  const Vector white = light(xy[0], xy[1]);
  Matrix primaries{};
  for (size_t k = 0; k < 3; ++k) {
    const Vector p = light(xy[2 + 2 * k], xy[3 + 2 * k]);
    for (size_t i = 0; i < 3; ++i) primaries[i][k] = p[i];
  }
  const Matrix rgb = primaries * diagonal(inverse(primaries) * white);
  const Matrix bradford{
      {{0.8951, 0.2664, -0.1614}, {-0.7502, 1.7135, 0.0367}, {0.0389, -0.0685, 1.0296}}};
  const Vector from = bradford * white, to = bradford * Vector{0.9642, 1, 0.8249};
  Vector ratio{};
  for (size_t i = 0; i < 3; ++i) {
    require(std::abs(from[i]) > 1e-9, "the white has no light");
    ratio[i] = to[i] / from[i];
  }
  return inverse(bradford) * diagonal(ratio) * bradford * rgb;
}

double srgb_of(double light) {
  return light <= 0.0031308 ? 12.92 * light : 1.055 * std::pow(light, 1 / 2.4) - 0.055;
}

double light_of(double srgb) {
  return srgb <= 0.04045 ? srgb / 12.92 : std::pow((srgb + 0.055) / 1.055, 2.4);
}

// Light for each of the 256 samples.
using Curve = std::array<double, 256>;

template <class F>
Curve curve_of(F&& f) {
  Curve c{};
  for (size_t i = 0; i < c.size(); ++i) {
    const double v = f(static_cast<double>(i) / 255);
    c[i] = v > 0 ? std::min(v, 1.0) : 0;  // NaN: 0
  }
  return c;
}

// A colour space: one curve for grey, or three and the XYZ of each primary in columns.
struct Space {
  std::vector<Curve> curves;
  Matrix to_xyz{};
};

// ---- ICC profiles ----

class Profile {
 public:
  explicit Profile(std::span<const uint8_t> bytes) : bytes_(bytes) {
    require(bytes.size() >= 132 && u32(36) == name("acsp"), "no ICC profile");
  }

  Space space() const {
    Space s;
    if (u32(16) == name("GRAY")) {
      s.curves = {curve(tag("kTRC"))};
      return s;
    }
    require(u32(16) == name("RGB "), "its colours are not RGB");
    require(u32(20) == name("XYZ "), "it has tables instead of a matrix");
    for (const char* t : {"rTRC", "gTRC", "bTRC"}) s.curves.push_back(curve(tag(t)));
    const char* columns[] = {"rXYZ", "gXYZ", "bXYZ"};
    for (size_t k = 0; k < 3; ++k) {
      const size_t at = tag(columns[k]);
      require(u32(at) == name("XYZ "), "a primary is of another type");
      for (size_t i = 0; i < 3; ++i) s.to_xyz[i][k] = fixed(at + 8 + 4 * i);
    }
    return s;
  }

 private:
  static uint32_t name(const char* text) {
    uint32_t v = 0;
    for (int i = 0; i < 4; ++i) v = v << 8 | static_cast<uint8_t>(text[i]);
    return v;
  }
  uint32_t number(size_t at, size_t size) const {
    require(at <= bytes_.size() && size <= bytes_.size() - at, "it ends too early");
    uint32_t v = 0;
    for (size_t i = 0; i < size; ++i) v = v << 8 | bytes_[at + i];
    return v;
  }
  uint32_t u32(size_t at) const { return number(at, 4); }
  uint32_t u16(size_t at) const { return number(at, 2); }
  double fixed(size_t at) const { return static_cast<int32_t>(u32(at)) / 65536.0; }

  // Where the data of a tag begin.
  size_t tag(const char* signature) const {
    const uint32_t count = std::min(u32(128), uint32_t{1000});
    for (size_t i = 0; i < count; ++i)
      if (u32(132 + 12 * i) == name(signature)) return u32(136 + 12 * i);
    fail("it has tables instead of curves and a matrix");
  }

  Curve curve(size_t at) const {
    if (u32(at) == name("para")) return parametric(at);
    require(u32(at) == name("curv"), "a curve is of another type");
    const size_t n = u32(at + 8);
    if (n == 0) return curve_of([](double x) { return x; });
    if (n == 1) {
      const double gamma = u16(at + 12) / 256.0;
      return curve_of([&](double x) { return std::pow(x, gamma); });
    }
    u16(at + 12 + 2 * (std::min(n, bytes_.size()) - 1));  // all of it is there
    return curve_of([&](double x) {
      const double place = x * static_cast<double>(n - 1);
      const size_t i = std::min(static_cast<size_t>(place), n - 2);
      const double part = place - static_cast<double>(i), low = u16(at + 12 + 2 * i);
      return (low + part * (u16(at + 14 + 2 * i) - low)) / 65535;
    });
  }

  Curve parametric(size_t at) const {
    constexpr size_t counts[] = {1, 3, 4, 5, 7};
    const uint32_t type = u16(at + 8);
    require(type < 5, "a curve is of another type");
    std::array<double, 7> p{1, 1, 0, 0, 0, 0, 0};  // g a b c d e f
    for (size_t i = 0; i < counts[type]; ++i) p[i] = fixed(at + 12 + 4 * i);
    const auto [g, a, b, c, d, e, f] = p;
    const bool split_at_zero = type == 1 || type == 2;  // where a x + b is 0
    return curve_of([&, g = g, a = a, b = b, c = c, d = d, e = e, f = f](double x) {
      const double power = std::pow(std::max(a * x + b, 0.0), g);
      if (type == 0) return std::pow(x, g);
      if (split_at_zero) return (a * x + b >= 0 ? power : 0) + (type == 2 ? c : 0);
      return x >= d ? power + (type == 4 ? e : 0) : c * x + (type == 4 ? f : 0);
    });
  }

  std::span<const uint8_t> bytes_;
};

// ---- conversion ----

class ToSrgb {
 public:
  explicit ToSrgb(const Space& s) : space_(s) {
    if (s.curves.size() == 3) matrix_ = inverse(to_d50(Primaries{}.xy)) * s.to_xyz;
    for (size_t i = 0; i < encoded_.size(); ++i)
      encoded_[i] = static_cast<uint8_t>(
          std::lround(255 * srgb_of(static_cast<double>(i) / (encoded_.size() - 1))));
  }

  void operator()(uint8_t* pixel) const {
    if (space_.curves.size() == 1) {
      *pixel = encode(space_.curves[0][*pixel]);
      return;
    }
    Vector v{};
    for (size_t i = 0; i < 3; ++i) v[i] = space_.curves[i][pixel[i]];
    v = matrix_ * v;
    for (size_t i = 0; i < 3; ++i) pixel[i] = encode(v[i]);
  }

  // True if colours are changed by no more than roundings of profiles do.
  bool changes_nothing() const {
    const int colours = space_.curves.size() == 1 ? 1 : 3;
    for (int i = 0; i < (colours == 1 ? 256 : 4096); ++i) {
      const int all[] = {colours == 1 ? i : i % 16 * 17, i / 16 % 16 * 17, i / 256 * 17};
      uint8_t p[3];
      std::copy_n(all, 3, p);
      (*this)(p);
      for (int k = 0; k < colours; ++k)
        if (std::abs(p[k] - all[k]) > 1) return false;
    }
    return true;
  }

 private:
  uint8_t encode(double light) const {
    const double place = std::clamp(light, 0.0, 1.0) * static_cast<double>(encoded_.size() - 1);
    return encoded_[static_cast<size_t>(place + 0.5)];
  }

  const Space& space_;
  Matrix matrix_{};
  std::array<uint8_t, (1 << 15) + 1> encoded_{};  // of light in equal steps
};

Space space_of(const ImageMetadata& m) {
  require(m.broken_icc.empty(), m.broken_icc);
  if (!m.icc.empty()) return Profile(m.icc).space();
  const double gamma = m.primaries->gamma;
  const Curve curve =
      curve_of([&](double x) { return gamma == 0 ? light_of(x) : std::pow(x, gamma); });
  return {{curve, curve, curve}, to_d50(m.primaries->xy)};
}

}  // namespace

Tensor to_srgb(const Tensor& image, const ImageMetadata& metadata, std::string& problem) {
  if (metadata.icc.empty() && metadata.broken_icc.empty() && !metadata.primaries) return image;
  try {
    Space space = space_of(metadata);
    const int64_t channels = image.shape()[2];
    const bool grey = channels <= 2;
    if (grey && metadata.icc.empty()) space.curves.resize(1);
    require(grey == (space.curves.size() == 1), "it is for ", grey ? "colour" : "grey",
            " and the image is not");
    const ToSrgb convert(space);
    if (convert.changes_nothing()) return image;
    Tensor out(DType::u8, image.shape());
    std::ranges::copy(image.span<uint8_t>(), out.span<uint8_t>().data());
    uint8_t* pixel = out.span<uint8_t>().data();
    for (int64_t i = 0; i < image.shape()[0] * image.shape()[1]; ++i) convert(pixel + i * channels);
    return out;
  } catch (const Error& e) {
    problem = str("colour profile: ", e.what());
    return image;
  }
}

}  // namespace ebb::io
