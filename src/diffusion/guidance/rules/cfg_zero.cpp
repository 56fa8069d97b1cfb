// cfg_zero: CFG-Zero*, the unconditional prediction scaled to fit the conditional one, and no
// movement in the first steps (Fan et al. 2025, arXiv:2503.18886). Made for flow models.
#include <algorithm>

#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

struct Options {
  ScaleOptions scale;
  int64_t zero_init_steps = 1;
  bool fit_noise = false;
  FormOption form{"raw"};
  void fields(auto&& f) {
    scale.fields(f);
    f("zero_init_steps", zero_init_steps, "number of first steps whose output is 0");
    f("fit_noise", fit_noise, "the fit is that of x less the predictions (ComfyUI, in form data)");
    form.fields(f);
  }
  void check() const {
    scale.check();
    require(zero_init_steps >= 0, "cfg_zero: zero_init_steps must not be negative (",
            zero_init_steps, ")");
    form.check();
  }
};

class CfgZero : public Guidance {
 public:
  explicit CfgZero(const Options& o) : o_(o), form_(find_form(o.form.form)) {}
  std::optional<Factors> factors(const StepContext& m) const override {
    if (m.step < o_.zero_init_steps || o_.scale.at(m) != 1) return std::nullopt;
    return Factors{}.add(Branch::cond, 1);
  }
  std::vector<Branch> needs(const StepContext& m) const override {
    if (m.step < o_.zero_init_steps) return {};
    return {Branch::cond, Branch::uncond};
  }
  Form form() const override { return form_; }
  void apply(GuidedSample& s, const StepContext& m) override {
    if (m.step < o_.zero_init_steps) {
      std::fill(s.result.begin(), s.result.end(), 0.0);
      return;
    }
    const Values c = s[Branch::cond], u = s[Branch::uncond];
    const double fit =
        o_.fit_noise ? fit_of(difference(s.state, c), difference(s.state, u)) : fit_of(c, u);
    const double scale = o_.scale.at(m);
    for (size_t i = 0; i < c.size(); ++i) s.result[i] = fit * u[i] + scale * (c[i] - fit * u[i]);
  }

 private:
  static double fit_of(Values c, Values u) { return dot(c, u) / (dot(u, u) + 1e-8); }

  Options o_;
  Form form_;
};

}  // namespace

const GuidanceRule& cfg_zero() {
  static const GuidanceRule r = make_rule<CfgZero, Options>(
      {.name = "cfg_zero",
       .help = "CFG-Zero*: a fitted unconditional prediction, zero at first",
       .aliases = {"cfg_zero_star"}});
  return r;
}

}  // namespace ebb::guidance_rules
