// mimic: cfg at a high scale with the range of cfg at a lower one (the extension of the user
// interfaces, sd-dynamic-thresholding, "CFG scale fix"; the options have its names).
#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/names.h"
#include "diffusion/guidance/options.h"
#include "diffusion/solver/formulas.h"

namespace ebb::guidance_rules {
namespace {

// How a scale changes over a run.
struct Mode {
  std::string_view name;
  double (*share)(double t, double power);  // t: from 0 to 1
};
double cosine(double t) { return std::cos(t * 1.5707); }
double saw(double t) { return t - std::floor(t); }
const Mode modes[] = {
    {"constant", [](double, double) { return 1.0; }},
    {"linear_down", [](double t, double) { return 1 - t; }},
    {"linear_up", [](double t, double) { return t; }},
    {"cosine_down", [](double t, double) { return cosine(t); }},
    {"cosine_up", [](double t, double) { return 1 - cosine(t); }},
    {"half_cosine_down", [](double t, double) { return std::cos(t); }},
    {"half_cosine_up", [](double t, double) { return 1 - std::cos(t); }},
    {"power_down", [](double t, double p) { return 1 - std::pow(t, p); }},
    {"power_up", [](double t, double p) { return std::pow(t, p); }},
    {"linear_repeating", [](double t, double p) { return std::abs(1 - 2 * saw(t * p)); }},
    {"cosine_repeating", [](double t, double p) { return (std::cos(t * 6.28318 * p) + 1) / 2; }},
    {"sawtooth", [](double t, double p) { return saw(t * p); }},
};

// "Half Cosine Down" is half_cosine_down.
const Mode& find_mode(std::string name) {
  for (char& c : name) c = c == ' ' ? '_' : static_cast<char>(std::tolower(c));
  return find_known("mimic: unknown mode", name, modes, &Mode::name);
}

struct Options {
  ScaleOptions scale{.scale = 14};
  double mimic_scale = 7, threshold_percentile = 1;
  std::string cfg_mode = "constant", mimic_mode = "constant";
  double cfg_scale_min = 0, mimic_scale_min = 0, sched_val = 1;
  bool separate_feature_channels = true;
  std::string variability_measure = "AD", scaling_startpoint = "MEAN";
  double interpolate_phi = 1;
  void fields(auto&& f) {
    scale.fields(f);
    f("mimic_scale", mimic_scale, "the scale whose range is taken");
    f("threshold_percentile", threshold_percentile,
      "AD: the quantile that is the range of the high scale, in [0, 1]");
    f("cfg_mode", cfg_mode, "how the scale changes over the steps, such as half_cosine_down");
    f("mimic_mode", mimic_mode, "how mimic_scale changes");
    f("cfg_scale_min", cfg_scale_min, "the scale changes above this");
    f("mimic_scale_min", mimic_scale_min, "mimic_scale changes above this");
    f("sched_val", sched_val, "exponent of power_..., repetitions of the repeating modes");
    f("separate_feature_channels", separate_feature_channels, "a range for each channel");
    f("variability_measure", variability_measure,
      "ranges are largest values (AD) or standard deviations (STD)");
    f("scaling_startpoint", scaling_startpoint,
      "values scale about their channel's mean (MEAN) or about 0 (ZERO)");
    f("interpolate_phi", interpolate_phi, "share of the result, the rest is plain cfg, in [0, 1]");
  }
  void check() const {
    scale.check();
    require(threshold_percentile >= 0 && threshold_percentile <= 1,
            "mimic: threshold_percentile must lie in [0, 1] (", threshold_percentile, ")");
    find_mode(cfg_mode);
    find_mode(mimic_mode);
    check_choice("mimic: variability_measure", variability_measure, {"AD", "STD"});
    check_choice("mimic: scaling_startpoint", scaling_startpoint, {"MEAN", "ZERO"});
  }
};

class Mimic : public Guidance {
 public:
  explicit Mimic(const Options& o)
      : o_(o),
        deviations_(o.variability_measure == "STD"),
        about_zero_(o.scaling_startpoint == "ZERO") {}
  std::optional<Factors> factors(const StepContext& m) const override {
    if (!m.off) return std::nullopt;
    return Factors{}.add(Branch::cond, 1);
  }
  std::vector<Branch> needs(const StepContext&) const override {
    return {Branch::cond, Branch::uncond};
  }

  void apply(GuidedSample& s, const StepContext& m) override {
    const Values c = s[Branch::cond], u = s[Branch::uncond];
    const double low = at(m, o_.mimic_mode, o_.mimic_scale, o_.mimic_scale_min);
    const double high = at(m, o_.cfg_mode, o_.scale.at(m), o_.cfg_scale_min);
    std::vector<double> like(c.size()), plain(c.size());
    for (size_t i = 0; i < c.size(); ++i) {
      like[i] = u[i] + low * (c[i] - u[i]);
      plain[i] = u[i] + high * (c[i] - u[i]);
    }
    std::vector<double> centred = plain;
    const std::vector<double> means = centre(centred, s.shape);
    centre(like, s.shape);
    if (o_.separate_feature_channels) {
      for (int64_t k = 0; k < s.shape.channels; ++k)
        fit_channel(centred, like, plain, {s.shape, k});
    } else {
      fit(centred, like, plain);
    }
    for (int64_t k = 0; k < s.shape.channels; ++k)
      for (int64_t p = 0; p < s.shape.pixels(); ++p) {
        const auto i = static_cast<size_t>(s.shape.at(p, k));
        const double v = centred[i] + (about_zero_ ? 0 : means[static_cast<size_t>(k)]);
        s.result[i] = o_.interpolate_phi * v + (1 - o_.interpolate_phi) * plain[i];
      }
  }

 private:
  struct Channel {
    const GuidedShape& shape;
    int64_t index;
  };

  double at(const StepContext& m, const std::string& mode, double scale, double least) const {
    const double last = static_cast<double>(m.steps - 1);
    const double t = last > 0 ? static_cast<double>(m.step) / last : 0;
    return least + (scale - least) * find_mode(mode).share(t, o_.sched_val);
  }

  // Takes every channel's mean away; returns the means.
  static std::vector<double> centre(std::vector<double>& v, const GuidedShape& shape) {
    std::vector<double> means;
    for (int64_t k = 0; k < shape.channels; ++k) {
      double sum = 0;
      for (int64_t p = 0; p < shape.pixels(); ++p) sum += v[static_cast<size_t>(shape.at(p, k))];
      means.push_back(sum / static_cast<double>(shape.pixels()));
      for (int64_t p = 0; p < shape.pixels(); ++p)
        v[static_cast<size_t>(shape.at(p, k))] -= means.back();
    }
    return means;
  }

  void fit_channel(std::span<double> v, Values like, Values plain, const Channel& c) const {
    const auto n = static_cast<size_t>(c.shape.pixels());
    std::vector<double> a(n), b(n), d(n);
    const auto place = [&](size_t p) {
      return static_cast<size_t>(c.shape.at(static_cast<int64_t>(p), c.index));
    };
    for (size_t p = 0; p < n; ++p) {
      a[p] = v[place(p)];
      b[p] = like[place(p)];
      d[p] = plain[place(p)];
    }
    fit(a, b, d);
    for (size_t p = 0; p < n; ++p) v[place(p)] = a[p];
  }

  // Gives centred values `v` the range of `like`. Values without a range stay.
  void fit(std::span<double> v, Values like, Values plain) const {
    const double to = deviations_ ? deviation(like) : largest(like);
    const double from = deviations_ ? deviation(v) : quantile(v, o_.threshold_percentile);
    if (about_zero_) std::copy(plain.begin(), plain.end(), v.begin());
    if (about_zero_ || deviations_) {
      if (from > 0)
        for (double& value : v) value *= to / from;
      return;
    }
    const double limit = std::max(to, from);
    if (limit > 0)
      for (double& value : v) value = std::clamp(value, -limit, limit) / limit * to;
  }

  Options o_;
  bool deviations_, about_zero_;
};

}  // namespace

const GuidanceRule& mimic() {
  static const GuidanceRule r = make_rule<Mimic, Options>(
      {.name = "mimic",
       .help = "dynamic thresholding: cfg with the range that a lower scale would give",
       .aliases = {"dynamic_thresholding_full", "cfg_scale_fix"}});
  return r;
}

}  // namespace ebb::guidance_rules
