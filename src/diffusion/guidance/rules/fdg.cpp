// fdg: frequency-decoupled guidance: a scale for each level of a Laplacian pyramid (Sadat et al.
// 2025, arXiv:2506.19713).
#include "base/error.h"
#include "diffusion/guidance/options.h"
#include "diffusion/guidance/pyramid.h"

namespace ebb::guidance_rules {
namespace {

struct Options {
  std::vector<double> guidance_scales = {10, 5};
  bool use_original_formulation = false;
  double parallel_weight = 1;
  FormOption form{"raw"};
  void fields(auto&& f) {
    f("guidance_scales", guidance_scales, "of the levels, the finest first; 1: off");
    f("use_original_formulation", use_original_formulation,
      "scales count from the conditional prediction; 0: off");
    f("parallel_weight", parallel_weight,
      "share kept of what lies along the conditional prediction");
    form.fields(f);
  }
  void check() const {
    require(!guidance_scales.empty() && guidance_scales.size() <= 16,
            "fdg: needs 1 to 16 guidance_scales (", guidance_scales.size(), ")");
    form.check();
  }
};

using Pyramids = std::vector<std::vector<Plane>>;  // of the channels

class Fdg : public Guidance {
 public:
  explicit Fdg(const Options& o) : o_(o), form_(find_form(o.form.form)) {}
  std::optional<Factors> factors(const StepContext& m) const override {
    if (!m.off) return std::nullopt;
    return Factors{}.add(Branch::cond, 1);
  }
  std::vector<Branch> needs(const StepContext&) const override {
    return {Branch::cond, Branch::uncond};
  }
  Form form() const override { return form_; }

  void apply(GuidedSample& s, const StepContext&) override {
    Pyramids c = decomposed(s, Branch::cond), u = decomposed(s, Branch::uncond);
    for (size_t l = 0; l < o_.guidance_scales.size(); ++l) guide_level(c, u, l);
    const Pyramids& result = c;
    for (int64_t k = 0; k < s.shape.channels; ++k) {
      const Plane out = collapsed(result[static_cast<size_t>(k)]);
      for (int64_t p = 0; p < s.shape.pixels(); ++p)
        s.result[static_cast<size_t>(s.shape.at(p, k))] =
            out.at(p / s.shape.width, p % s.shape.width);
    }
  }

 private:
  // Sides grow, mirrored at their end, to what halves often enough.
  Pyramids decomposed(const GuidedSample& s, Branch branch) const {
    const auto levels = static_cast<int64_t>(o_.guidance_scales.size());
    const int64_t unit = int64_t{1} << (levels - 1);
    const auto grown = [unit](int64_t n) { return (n + unit - 1) / unit * unit; };
    const auto mirrored = [](int64_t i, int64_t n) {
      const int64_t period = n > 1 ? 2 * (n - 1) : 1;
      return n > 1 && i % period >= n ? period - i % period : i % period;
    };
    Pyramids out;
    for (int64_t k = 0; k < s.shape.channels; ++k) {
      Plane plane{grown(s.shape.height), grown(s.shape.width), {}};
      for (int64_t y = 0; y < plane.height; ++y)
        for (int64_t x = 0; x < plane.width; ++x) {
          const int64_t pixel =
              mirrored(y, s.shape.height) * s.shape.width + mirrored(x, s.shape.width);
          plane.values.push_back(s[branch][static_cast<size_t>(s.shape.at(pixel, k))]);
        }
      out.push_back(laplacian(std::move(plane), levels));
    }
    return out;
  }

  // Changes level `l` of c: u + s (c - u), less what of c - u lies along c over all channels.
  void guide_level(Pyramids& c, const Pyramids& u, size_t l) const {
    double dc = 0, cc = 0;
    for (size_t k = 0; k < c.size(); ++k)
      for (size_t i = 0; i < c[k][l].values.size(); ++i) {
        const double v = c[k][l].values[i];
        dc += (v - u[k][l].values[i]) * v;
        cc += v * v;
      }
    const double less = cc == 0 ? 0 : (1 - o_.parallel_weight) * dc / cc;
    for (size_t k = 0; k < c.size(); ++k)
      for (size_t i = 0; i < c[k][l].values.size(); ++i) {
        double& v = c[k][l].values[i];
        const double from = u[k][l].values[i], base = o_.use_original_formulation ? v : from;
        v = base + o_.guidance_scales[l] * (v - from - less * v);
      }
  }

  Options o_;
  Form form_;
};

}  // namespace

const GuidanceRule& fdg() {
  static const GuidanceRule r =
      make_rule<Fdg, Options>({.name = "fdg",
                               .help = "a scale for each range of frequencies",
                               .has_scale = false,
                               .aliases = {"frequency_decoupled"}});
  return r;
}

}  // namespace ebb::guidance_rules
