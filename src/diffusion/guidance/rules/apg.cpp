// apg: adaptive projected guidance: the difference of the predictions with momentum, bounded, and
// with less of what lies along the conditional prediction (Sadat et al. 2024, arXiv:2410.02416).
//
// diffusers: base uncond (paper with above_cond), form raw. ComfyUI: base cond, form data.
// stable-diffusion.cpp: base paper, values 65536; its sums are over the batch, these over a sample.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/names.h"
#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

struct Options {
  ScaleOptions scale;
  double eta = 0, limit = 15, momentum = -0.5;
  std::string base = "paper";
  int64_t values = 0;
  double smooth = 0;
  bool by_pixel = false;
  FormOption form;
  void fields(auto&& f) {
    scale.fields(f);
    f("eta", eta, "share that is kept of what lies along the conditional prediction");
    f("limit", limit, "largest norm of the difference; 0: none");
    f("momentum", momentum, "times the difference of the step before, added to the difference");
    f("base", base, "paper: c + (s - 1) d; uncond: u + s d; cond: c + s d");
    f("values", values, "the norm is that of a sample of so many values; 0: as it is");
    f("smooth", smooth, "smoothness of the limit; 0: sharp");
    f("by_pixel", by_pixel, "norm and projection of each pixel's channels, not of the sample");
    form.fields(f);
  }
  void check() const {
    scale.check();
    form.check();
    require(limit >= 0, "apg: limit must not be negative (", limit, ")");
    require(smooth >= 0, "apg: smooth must not be negative (", smooth, ")");
    require(values >= 0, "apg: values must not be negative (", values, ")");
    require(base == "paper" || base == "uncond" || base == "cond", "apg: unknown base '", base, "'",
            suggestion(base, std::vector<std::string>{"paper", "uncond", "cond"}));
  }
};

class Apg : public Guidance {
 public:
  explicit Apg(const Options& o) : o_(o), form_(find_form(o.form.form)) {}
  std::optional<Factors> factors(const Moment& m) const override {
    if (o_.scale.at(m) != 1) return std::nullopt;
    return Factors{}.add(Ask::cond, 1);
  }
  std::vector<Ask> needs(const Moment&) const override { return {Ask::cond, Ask::uncond}; }
  Form form() const override { return form_; }

  void apply(GuidedSample& s, const Moment& m) override {
    const Values c = s[Ask::cond], u = s[Ask::uncond];
    std::vector<double> d = remembered(s, m.sigma);
    if (o_.by_pixel) {
      for (int64_t p = 0; p < s.shape.pixels(); ++p) project(d, c, members_of(s.shape, p));
    } else {
      std::vector<size_t> all(d.size());
      std::iota(all.begin(), all.end(), size_t{0});
      project(d, c, all);
    }
    const double scale = o_.scale.at(m) - (o_.base == "paper" ? 1 : 0);
    const Values base = o_.base == "uncond" ? u : c;
    for (size_t i = 0; i < d.size(); ++i) s.result[i] = base[i] + scale * d[i];
  }

 private:
  struct Memory {
    double sigma = 0;
    std::vector<double> difference;
  };

  // c - u with its past. A level that rises starts a run.
  std::vector<double> remembered(const GuidedSample& s, double sigma) {
    std::vector<double> d = difference(s[Ask::cond], s[Ask::uncond]);
    if (o_.momentum == 0) return d;
    const auto index = static_cast<size_t>(s.index);
    if (memory_.size() <= index) memory_.resize(index + 1);
    Memory& before = memory_[index];
    if (sigma <= before.sigma && before.difference.size() == d.size())
      for (size_t i = 0; i < d.size(); ++i) d[i] += o_.momentum * before.difference[i];
    before = {sigma, d};
    return d;
  }

  static std::vector<size_t> members_of(const GuidedShape& shape, int64_t pixel) {
    std::vector<size_t> out;
    for (int64_t k = 0; k < shape.channels; ++k)
      out.push_back(static_cast<size_t>(shape.at(pixel, k)));
    return out;
  }

  // Bounds the members of d and takes away what lies along those of c.
  void project(std::span<double> d, Values c, const std::vector<size_t>& members) const {
    double dd = 0, dc = 0, cc = 0;
    for (const size_t i : members) {
      dd += d[i] * d[i];
      dc += d[i] * c[i];
      cc += c[i] * c[i];
    }
    const double factor = bound(std::sqrt(dd), members.size());
    const double along = cc == 0 ? 0 : (1 - o_.eta) * factor * dc / cc;
    for (const size_t i : members) d[i] = factor * d[i] - along * c[i];
  }

  double bound(double size, size_t count) const {
    if (o_.limit == 0 || size == 0) return 1;
    if (o_.values > 0)
      size *= std::sqrt(static_cast<double>(o_.values) / static_cast<double>(count));
    const double most = o_.limit / size;
    if (o_.smooth == 0) return std::min(1.0, most);
    return most / std::pow(1 + std::pow(most, 1 / o_.smooth), o_.smooth);
  }

  Options o_;
  Form form_;
  std::vector<Memory> memory_;
};

}  // namespace

const GuidanceRule& apg() {
  static const GuidanceRule r =
      make_rule<Apg, Options>({.name = "apg", .help = "adaptive projected guidance"});
  return r;
}

}  // namespace ebb::guidance_rules
