// apg: adaptive projected guidance: the difference of the predictions with momentum, bounded, and
// with less of what lies along the conditional prediction (Sadat et al. 2024, arXiv:2410.02416).
//
// diffusers: base uncond (paper with use_original_formulation), form raw. ComfyUI: base cond, form
// data. stable-diffusion.cpp: base paper, norm_values 65536; its sums are over the batch, these
// over a sample.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "diffusion/guidance/options.h"
#include "diffusion/solver/formulas.h"

namespace ebb::guidance_rules {
namespace {

struct Options {
  ScaleOptions scale;
  double eta = 0, norm_threshold = 15, momentum = -0.5;
  std::string base = "paper";
  int64_t norm_values = 0;
  double norm_threshold_smoothing = 0;
  bool by_pixel = false;
  FormOption form;
  void fields(auto&& f) {
    scale.fields(f);
    f("eta", eta, "share kept of what lies along the conditional prediction");
    f("norm_threshold", norm_threshold, "largest norm of the difference; 0: no limit");
    f("momentum", momentum, "times the last evaluation's difference, added to this one's");
    f("base", base, "paper: c + (s - 1) d; uncond: u + s d; cond: c + s d");
    f("norm_values", norm_values, "the norm is as if of so many values; 0: of the sample's");
    f("norm_threshold_smoothing", norm_threshold_smoothing, "softness of the limit; 0: sharp");
    f("by_pixel", by_pixel, "norms and projections per pixel, over channels, not per sample");
    form.fields(f);
  }
  void check() const {
    scale.check();
    form.check();
    require(norm_threshold >= 0, "apg: norm_threshold must not be negative (", norm_threshold, ")");
    require(norm_threshold_smoothing >= 0, "apg: norm_threshold_smoothing must not be negative (",
            norm_threshold_smoothing, ")");
    require(norm_values >= 0, "apg: norm_values must not be negative (", norm_values, ")");
    check_choice("apg: base", base, {"paper", "uncond", "cond"});
  }
};

class Apg : public Guidance {
 public:
  explicit Apg(const Options& o) : o_(o), form_(find_form(o.form.form)) {}
  std::optional<Factors> factors(const StepContext& m) const override {
    if (o_.scale.at(m) != 1) return std::nullopt;
    return Factors{}.add(Branch::cond, 1);
  }
  std::vector<Branch> needs(const StepContext&) const override {
    return {Branch::cond, Branch::uncond};
  }
  Form form() const override { return form_; }
  void restart() override { memory_.clear(); }

  void apply(GuidedSample& s, const StepContext& m) override {
    const Values c = s[Branch::cond], u = s[Branch::uncond];
    std::vector<double> d = remembered(s, m);
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

  // c - u with its past.
  std::vector<double> remembered(const GuidedSample& s, const StepContext& m) {
    std::vector<double> d = difference(s[Branch::cond], s[Branch::uncond]);
    if (o_.momentum == 0) return d;
    const auto index = static_cast<size_t>(s.index);
    if (memory_.size() <= index) memory_.resize(index + 1);
    Memory& before = memory_[index];
    // A level that rises starts a run. Samplers with several evaluations a step may ask twice at
    // one level, but in the first step only the next run does.
    const bool same_run = m.step > 0 ? m.sigma <= before.sigma : m.sigma < before.sigma;
    if (same_run && before.difference.size() == d.size())
      for (size_t i = 0; i < d.size(); ++i) d[i] += o_.momentum * before.difference[i];
    before = {m.sigma, d};
    return d;
  }

  static std::vector<size_t> members_of(const GuidedShape& shape, int64_t pixel) {
    std::vector<size_t> out;
    for (int64_t k = 0; k < shape.channels; ++k)
      out.push_back(static_cast<size_t>(shape.at(pixel, k)));
    return out;
  }

  // Bounds the entries of d and removes the component along c.
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
    if (o_.norm_threshold == 0 || size == 0) return 1;
    if (o_.norm_values > 0)
      size *= std::sqrt(static_cast<double>(o_.norm_values) / static_cast<double>(count));
    const double most = o_.norm_threshold / size;
    if (o_.norm_threshold_smoothing == 0) return std::min(1.0, most);
    return most / std::pow(1 + std::pow(most, 1 / o_.norm_threshold_smoothing),
                           o_.norm_threshold_smoothing);
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
