// dual_cfg: two conditions with a scale each. `plain` is InstructPix2Pix (Brooks et al. 2022,
// arXiv:2211.09800, equation 3), u + s (c - p) + s2 (p - u), where p has a part of the condition;
// `nested` guides from p first, u + s2 (p + s (c - p) - u).
#include "base/names.h"
#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

struct Options {
  ScaleOptions scale;
  double second = 1.5;
  std::string style = "plain";
  void fields(auto&& f) {
    scale.fields(f);
    f("second", second, "scale of the part that p has");
    f("style", style, "plain or nested");
  }
  void check() const {
    scale.check();
    require(style == "plain" || style == "nested", "dual_cfg: unknown style '", style, "'",
            suggestion(style, std::vector<std::string>{"plain", "nested"}));
  }
};

class DualCfg : public Guidance {
 public:
  explicit DualCfg(const Options& o) : o_(o) {}
  std::optional<Factors> factors(const Moment& m) const override {
    const double s = o_.scale.at(m), t = m.off ? 1 : o_.second;
    const double inner = o_.style == "nested" ? t : 1;
    return Factors{}
        .add(Ask::cond, inner * s)
        .add(Ask::partial, t - inner * s)
        .add(Ask::uncond, 1 - t);
  }

 private:
  Options o_;
};

}  // namespace

const GuidanceRule& dual_cfg() {
  static const GuidanceRule r = make_rule<DualCfg, Options>(
      {.name = "dual_cfg", .help = "two conditions with a scale each (InstructPix2Pix)"});
  return r;
}

}  // namespace ebb::guidance_rules
