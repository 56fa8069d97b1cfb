// tcfg: before cfg, leaves of the unconditional prediction only what lies along the first right
// singular vector of the two predictions (tangential damping, arXiv:2503.18137). ComfyUI does so
// for the noise, x - D; diffusers for the output, whatever that is.
#include <cmath>

#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

class Tcfg : public Guidance {
 public:
  explicit Tcfg(const FormOption& o) : form_(find_form(o.form)) {}
  std::optional<Factors> factors(const StepContext& m) const override {
    if (!m.off) return std::nullopt;
    return Factors{.own = 1};
  }
  std::vector<Branch> needs(const StepContext&) const override {
    return {Branch::cond, Branch::uncond};
  }
  Form form() const override { return form_; }
  void apply(GuidedSample& s, const StepContext&) override {
    const Values c = s[Branch::cond];
    auto& u = s.predictions[static_cast<size_t>(Branch::uncond)];
    const double cc = dot(c, c), cu = dot(c, u), uu = dot(u, u);
    // The first eigenvector of [[cc, cu], [cu, uu]] gives the singular vector as a sum of both.
    const double angle = 0.5 * std::atan2(2 * cu, cc - uu);
    const double a = std::cos(angle), b = std::sin(angle);
    const double square = a * a * cc + 2 * a * b * cu + b * b * uu;
    if (square == 0) return;
    const double along = (a * cu + b * uu) / square;
    for (size_t i = 0; i < u.size(); ++i) u[i] = along * (a * c[i] + b * u[i]);
  }

 private:
  Form form_;
};

struct Options : FormOption {
  Options() : FormOption{"raw"} {}
};

}  // namespace

const GuidanceRule& tcfg() {
  static const GuidanceRule r = make_rule<Tcfg, Options>(
      {.name = "tcfg",
       .help = "damps what only the unconditional prediction has; before cfg",
       .kind = RuleKind::prepares});
  return r;
}

}  // namespace ebb::guidance_rules
