// mambo_g: a scale that falls where conditional and unconditional prediction lie far apart
// (magnitude-aware guidance): s' = 1 + (s - 1) exp(-alpha |c - u| / |u|).
#include <cmath>

#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

struct Options {
  ScaleOptions scale;
  double alpha = 8;
  FormOption form{"raw"};
  void fields(auto&& f) {
    scale.fields(f);
    f("alpha", alpha, "exponent per relative distance; 0: cfg");
    form.fields(f);
  }
  void check() const {
    scale.check();
    form.check();
  }
};

class MamboG : public Guidance {
 public:
  explicit MamboG(const Options& o) : o_(o), form_(find_form(o.form.form)) {}
  std::optional<Factors> factors(const StepContext& m) const override {
    if (o_.scale.at(m) != 1) return std::nullopt;
    return Factors{}.add(Branch::cond, 1);
  }
  std::vector<Branch> needs(const StepContext&) const override {
    return {Branch::cond, Branch::uncond};
  }
  Form form() const override { return form_; }
  void apply(GuidedSample& s, const StepContext& m) override {
    const Values c = s[Branch::cond], u = s[Branch::uncond];
    const double apart = norm(difference(c, u)), size = norm(u);
    const double fall = apart == 0 ? 1 : std::exp(-o_.alpha * apart / size);  // size 0: 0
    const double scale = 1 + (o_.scale.at(m) - 1) * fall;
    for (size_t i = 0; i < c.size(); ++i) s.result[i] = u[i] + scale * (c[i] - u[i]);
  }

 private:
  Options o_;
  Form form_;
};

}  // namespace

const GuidanceRule& mambo_g() {
  static const GuidanceRule r =
      make_rule<MamboG, Options>({.name = "mambo_g",
                                  .help = "MaMBo-G: less scale where predictions lie far apart",
                                  .aliases = {"magnitude_aware"}});
  return r;
}

}  // namespace ebb::guidance_rules
