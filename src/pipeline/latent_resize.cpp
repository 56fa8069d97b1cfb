#include "pipeline/latent_resize.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ebb {
namespace {

// An output sample: weights of input samples.
struct Tap {
  std::vector<int64_t> from;
  std::vector<double> weights;
};

double cubic(double x, double a) {
  const double d = std::fabs(x);
  if (d < 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

// Inputs around a position between samples; those outside are the edge's.
Tap around(double position, int64_t n, int64_t reach, double (*weight)(double)) {
  Tap t;
  const auto first = static_cast<int64_t>(std::floor(position));
  for (int64_t i = first - reach + 1; i <= first + reach; ++i) {
    t.from.push_back(std::clamp<int64_t>(i, 0, n - 1));
    t.weights.push_back(weight(static_cast<double>(i) - position));
  }
  return t;
}

// Inputs under a filter of a reach that grows with `scale`; those outside do not count.
Tap under(double centre, int64_t n, double scale, double reach, double (*weight)(double)) {
  Tap t;
  const double wide = std::max(scale, 1.0), support = reach * wide;
  const auto first = std::max<int64_t>(static_cast<int64_t>(centre - support + 0.5), 0),
             end = std::min<int64_t>(static_cast<int64_t>(centre + support + 0.5), n);
  double sum = 0;
  for (int64_t i = first; i < end; ++i) {
    t.from.push_back(i);
    t.weights.push_back(weight((static_cast<double>(i) + 0.5 - centre) / wide));
    sum += t.weights.back();
  }
  for (double& w : t.weights) w /= sum;
  return t;
}

double triangle(double x) { return std::max(1 - std::fabs(x), 0.0); }

Tap tap_of(int64_t at, int64_t from, int64_t to, LatentFilter filter) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double centre = (static_cast<double>(at) + 0.5) * scale;
  const auto one = [from](double position) {
    return Tap{{std::min(static_cast<int64_t>(position), from - 1)}, {1}};
  };
  const auto sharp = [](double x) { return cubic(x, -0.75); };
  const auto soft = [](double x) { return cubic(x, -0.5); };
  switch (filter) {
    case LatentFilter::nearest: return one(static_cast<double>(at) * scale);
    case LatentFilter::nearest_exact: return one(centre);
    case LatentFilter::bilinear: return around(std::max(centre - 0.5, 0.0), from, 1, triangle);
    case LatentFilter::bicubic: return around(centre - 0.5, from, 2, sharp);
    case LatentFilter::bilinear_antialias: return under(centre, from, scale, 1, triangle);
    case LatentFilter::bicubic_antialias: break;
  }
  return under(centre, from, scale, 2, soft);
}

// [outer, n, inner] to [outer, taps, inner].
std::vector<float> filtered(const std::vector<float>& in, int64_t outer, int64_t n, int64_t inner,
                            const std::vector<Tap>& taps) {
  const auto count = static_cast<int64_t>(taps.size());
  std::vector<float> out(static_cast<size_t>(outer * count * inner));
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t t = 0; t < count; ++t) {
      const Tap& tap = taps[static_cast<size_t>(t)];
      for (int64_t c = 0; c < inner; ++c) {
        double sum = 0;
        for (size_t k = 0; k < tap.from.size(); ++k)
          sum +=
              tap.weights[k] * double{in[static_cast<size_t>((o * n + tap.from[k]) * inner + c)]};
        out[static_cast<size_t>((o * count + t) * inner + c)] = static_cast<float>(sum);
      }
    }
  return out;
}

std::vector<Tap> taps_of(int64_t from, int64_t to, LatentFilter filter) {
  std::vector<Tap> out;
  for (int64_t i = 0; i < to; ++i) out.push_back(tap_of(i, from, to, filter));
  return out;
}

}  // namespace

Tensor resized(const Tensor& latents, int64_t height, int64_t width, LatentFilter filter) {
  const Shape& s = latents.shape();
  require(s.rank() == 4 && height > 0 && width > 0, "resize: needs images [N,H,W,C]  got ", s);
  const auto in = latents.span<float>();
  const std::vector<float> narrow =
      filtered({in.begin(), in.end()}, s[0] * s[1], s[2], s[3], taps_of(s[2], width, filter));
  const std::vector<float> both =
      filtered(narrow, s[0], s[1], width * s[3], taps_of(s[1], height, filter));
  Tensor out(DType::f32, {s[0], height, width, s[3]});
  std::ranges::copy(both, out.span<float>().begin());
  return out;
}

}  // namespace ebb
