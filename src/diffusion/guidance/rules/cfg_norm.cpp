// cfg_norm: no pixel's vector of channels becomes longer than the conditional prediction's.
#include <algorithm>
#include <cmath>

#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

struct Options {
  double strength = 1;
  FormOption form;
  void fields(auto&& f) {
    f("strength", strength, "times the result");
    form.fields(f);
  }
  void check() const { form.check(); }
};

class CfgNorm : public Guidance {
 public:
  explicit CfgNorm(const Options& o) : o_(o), form_(find_form(o.form.form)) {}
  std::optional<Factors> factors(const StepContext&) const override { return std::nullopt; }
  std::vector<Branch> needs(const StepContext&) const override { return {Branch::cond}; }
  bool changes_alone() const override { return o_.strength != 1; }
  Form form() const override { return form_; }
  void apply(GuidedSample& s, const StepContext&) override {
    const GuidedShape& shape = s.shape;
    const Values c = s[Branch::cond];
    for (int64_t p = 0; p < shape.pixels(); ++p) {
      double cond = 0, result = 0;
      for (int64_t k = 0; k < shape.channels; ++k) {
        const auto i = static_cast<size_t>(shape.at(p, k));
        cond += c[i] * c[i];
        result += s.result[i] * s.result[i];
      }
      const double factor = std::min(1.0, std::sqrt(cond) / (std::sqrt(result) + 1e-8));
      for (int64_t k = 0; k < shape.channels; ++k)
        s.result[static_cast<size_t>(shape.at(p, k))] *= factor * o_.strength;
    }
  }

 private:
  Options o_;
  Form form_;
};

}  // namespace

const GuidanceRule& cfg_norm() {
  static const GuidanceRule r = make_rule<CfgNorm, Options>(
      {.name = "cfg_norm",
       .help = "limits channel vectors to the length of the conditional ones",
       .kind = RuleKind::mends});
  return r;
}

}  // namespace ebb::guidance_rules
