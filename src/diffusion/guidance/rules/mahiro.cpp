// mahiro: between cfg and s c, by how alike the directions of s u and of the mean of both are.
// The likeness is averaged over one sample; ComfyUI averages over the batch.
#include <algorithm>
#include <cmath>

#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

double signed_root(double v) { return std::copysign(std::sqrt(std::abs(v)), v); }

class Mahiro : public Guidance {
 public:
  explicit Mahiro(const ScaleOptions& o) : o_(o) {}
  std::optional<Factors> factors(const StepContext& m) const override {
    if (o_.at(m) != 1) return std::nullopt;
    return Factors{}.add(Branch::cond, 1);
  }
  std::vector<Branch> needs(const StepContext&) const override {
    return {Branch::cond, Branch::uncond};
  }
  void apply(GuidedSample& s, const StepContext& m) override {
    const double scale = o_.at(m);
    const Values c = s[Branch::cond], u = s[Branch::uncond];
    for (size_t i = 0; i < c.size(); ++i) s.result[i] = u[i] + scale * (c[i] - u[i]);
    double alike = 0;
    for (int64_t p = 0; p < s.shape.pixels(); ++p) alike += alike_at(s, p, scale);
    const double k = 2 * (alike / static_cast<double>(s.shape.pixels()) + 1);
    for (size_t i = 0; i < c.size(); ++i)
      s.result[i] = (k * s.result[i] + (4 - k) * scale * c[i]) / 4;
  }

 private:
  // The cosine between the channels of one pixel.
  static double alike_at(const GuidedSample& s, int64_t pixel, double scale) {
    double ab = 0, aa = 0, bb = 0;
    for (int64_t k = 0; k < s.shape.channels; ++k) {
      const auto i = static_cast<size_t>(s.shape.at(pixel, k));
      const double a = signed_root(scale * s[Branch::uncond][i]);
      const double b = signed_root((scale * s[Branch::cond][i] + s.result[i]) / 2);
      ab += a * b;
      aa += a * a;
      bb += b * b;
    }
    return ab / std::max(std::sqrt(aa), 1e-8) / std::max(std::sqrt(bb), 1e-8);
  }

  ScaleOptions o_;
};

}  // namespace

const GuidanceRule& mahiro() {
  static const GuidanceRule r = make_rule<Mahiro, ScaleOptions>(
      {.name = "mahiro", .help = "leans to the scaled conditional prediction where cfg differs"});
  return r;
}

}  // namespace ebb::guidance_rules
