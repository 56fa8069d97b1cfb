// dual_cfg: two conditions with a scale each. `regular` is InstructPix2Pix (Brooks et al. 2022,
// arXiv:2211.09800, equation 3), u + s (c - p) + s2 (p - u), where p has a part of the condition;
// `nested` guides from p first, u + s2 (p + s (c - p) - u). ComfyUI calls s and s2 cfg_conds and
// cfg_cond2_negative, the webui calls s2 image_cfg_scale.
#include "diffusion/guidance/options.h"
#include "diffusion/solver/formulas.h"

namespace ebb::guidance_rules {
namespace {

struct Options {
  ScaleOptions scale;
  double image_guidance_scale = 1.5;
  std::string style = "regular";
  void fields(auto&& f) {
    scale.fields(f);
    f("image_guidance_scale", image_guidance_scale, "s2, of the part that p has; 1: off");
    f("style", style, "regular or nested");
  }
  void check() const {
    scale.check();
    check_choice("dual_cfg: style", style, {"regular", "nested"});
  }
};

class DualCfg : public Guidance {
 public:
  explicit DualCfg(const Options& o) : o_(o) {}
  std::optional<Factors> factors(const StepContext& m) const override {
    const double s = o_.scale.at(m), t = m.off ? 1 : o_.image_guidance_scale;
    const double inner = o_.style == "nested" ? t : 1;
    return Factors{}
        .add(Branch::cond, inner * s)
        .add(Branch::partial, t - inner * s)
        .add(Branch::uncond, 1 - t);
  }

 private:
  Options o_;
};

}  // namespace

const GuidanceRule& dual_cfg() {
  static const GuidanceRule r =
      make_rule<DualCfg, Options>({.name = "dual_cfg",
                                   .help = "two conditions with a scale each (InstructPix2Pix)",
                                   .aliases = {"ip2p"},
                                   .extra = {Branch::partial}});
  return r;
}

}  // namespace ebb::guidance_rules
