// mimic: cfg at a high scale with the range of cfg at a lower one (the "dynamic thresholding"
// extension of the user interfaces, sd-dynamic-thresholding).
#include <algorithm>
#include <cmath>

#include "base/names.h"
#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

// How a scale changes over a run.
struct Course {
  std::string_view name;
  double (*share)(double t, double power);  // t: from 0 to 1
};
double cosine(double t) { return std::cos(t * 1.5707); }
double saw(double t) { return t - std::floor(t); }
const Course courses[] = {
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

const Course& find_course(std::string_view name) {
  std::vector<std::string> known;
  for (const Course& c : courses) {
    if (c.name == name) return c;
    known.emplace_back(c.name);
  }
  fail("mimic: unknown course '", name, "'", suggestion(name, known));
}

struct Options {
  ScaleOptions scale{.scale = 14};
  double mimic_scale = 7, percentile = 1;
  std::string course = "constant", mimic_course = "constant";
  double least = 0, mimic_least = 0, power = 1;
  bool by_channel = true, deviations = false, about_zero = false;
  double phi = 1;
  void fields(auto&& f) {
    scale.fields(f);
    f("mimic_scale", mimic_scale, "the scale whose range is taken");
    f("percentile", percentile, "the quantile that is the range of the high scale, in [0, 1]");
    f("course", course, "how the scale changes over the steps, e.g. half_cosine_down");
    f("mimic_course", mimic_course, "how mimic_scale does");
    f("least", least, "the scale changes above this");
    f("mimic_least", mimic_least, "mimic_scale changes above this");
    f("power", power, "exponent of power_..., repetitions of the repeating ones");
    f("by_channel", by_channel, "a range for each channel");
    f("deviations", deviations, "ranges are standard deviations, not largest values");
    f("about_zero", about_zero, "values scale about 0, not about their channel's mean");
    f("phi", phi, "share of the result; the rest is plain cfg");
  }
  void check() const {
    scale.check();
    require(percentile >= 0 && percentile <= 1, "mimic: percentile must lie in [0, 1] (",
            percentile, ")");
    find_course(course);
    find_course(mimic_course);
  }
};

class Mimic : public Guidance {
 public:
  explicit Mimic(const Options& o) : o_(o) {}
  std::optional<Factors> factors(const Moment& m) const override {
    if (!m.off) return std::nullopt;
    return Factors{}.add(Ask::cond, 1);
  }
  std::vector<Ask> needs(const Moment&) const override { return {Ask::cond, Ask::uncond}; }

  void apply(GuidedSample& s, const Moment& m) override {
    const Values c = s[Ask::cond], u = s[Ask::uncond];
    const double low = at(m, o_.mimic_course, o_.mimic_scale, o_.mimic_least);
    const double high = at(m, o_.course, o_.scale.at(m), o_.least);
    std::vector<double> like(c.size()), plain(c.size());
    for (size_t i = 0; i < c.size(); ++i) {
      like[i] = u[i] + low * (c[i] - u[i]);
      plain[i] = u[i] + high * (c[i] - u[i]);
    }
    std::vector<double> centred = plain;
    const std::vector<double> means = centre(centred, s.shape);
    centre(like, s.shape);
    if (o_.by_channel) {
      for (int64_t k = 0; k < s.shape.channels; ++k)
        fit_channel(centred, like, plain, {s.shape, k});
    } else {
      fit(centred, like, plain);
    }
    for (int64_t k = 0; k < s.shape.channels; ++k)
      for (int64_t p = 0; p < s.shape.pixels(); ++p) {
        const auto i = static_cast<size_t>(s.shape.at(p, k));
        const double v = centred[i] + (o_.about_zero ? 0 : means[static_cast<size_t>(k)]);
        s.result[i] = o_.phi * v + (1 - o_.phi) * plain[i];
      }
  }

 private:
  struct Channel {
    const GuidedShape& shape;
    int64_t index;
  };

  double at(const Moment& m, const std::string& course, double scale, double least) const {
    const double last = static_cast<double>(m.steps - 1);
    const double t = last > 0 ? static_cast<double>(m.step) / last : 0;
    return least + (scale - least) * find_course(course).share(t, o_.power);
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
    const double to = o_.deviations ? deviation(like) : largest(like);
    const double from = o_.deviations ? deviation(v) : quantile(v, o_.percentile);
    if (o_.about_zero) std::copy(plain.begin(), plain.end(), v.begin());
    if (o_.about_zero || o_.deviations) {
      if (from > 0)
        for (double& value : v) value *= to / from;
      return;
    }
    const double limit = std::max(to, from);
    if (limit > 0)
      for (double& value : v) value = std::clamp(value, -limit, limit) / limit * to;
  }

  Options o_;
};

}  // namespace

const GuidanceRule& mimic() {
  static const GuidanceRule r = make_rule<Mimic, Options>(
      {.name = "mimic", .help = "cfg with the range that a lower scale would give"});
  return r;
}

}  // namespace ebb::guidance_rules
