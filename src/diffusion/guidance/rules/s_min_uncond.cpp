// s_min_uncond: leaves the unconditional pass out below a noise level ("negative guidance minimum
// sigma", NGMS) and in early steps, as Stable Diffusion web UI does; its options have the names of
// that program's settings. The rules after it do not guide then.
#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

struct Options {
  double s_min_uncond = 0;
  bool s_min_uncond_all = false;
  double skip_early_cond = 0;
  void fields(auto&& f) {
    f("s_min_uncond", s_min_uncond, "off in odd steps (from 0) at noise levels below this");
    f("s_min_uncond_all", s_min_uncond_all, "and in even steps there");
    f("skip_early_cond", skip_early_cond,
      "off in steps up to this share of all, in [0, 1]; 0: none");
  }
  void check() const {
    require(s_min_uncond >= 0, "s_min_uncond: s_min_uncond must not be negative (", s_min_uncond,
            ")");
    require(skip_early_cond >= 0 && skip_early_cond <= 1,
            "s_min_uncond: skip_early_cond must lie in [0, 1] (", skip_early_cond, ")");
  }
};

class SMinUncond : public Guidance {
 public:
  explicit SMinUncond(const Options& o) : o_(o) {}
  std::vector<double> edges() const override { return {o_.s_min_uncond}; }
  void direct(StepContext& m) const override {
    const bool late = (o_.s_min_uncond_all || m.step % 2 == 1) && m.sigma < o_.s_min_uncond;
    const double share = static_cast<double>(m.step) / static_cast<double>(m.steps);
    m.off = m.off || late || (o_.skip_early_cond > 0 && share <= o_.skip_early_cond);
  }

 private:
  Options o_;
};

}  // namespace

const GuidanceRule& s_min_uncond() {
  static const GuidanceRule r = make_rule<SMinUncond, Options>(
      {.name = "s_min_uncond",
       .help = "no unconditional pass early, or in odd late steps (NGMS)",
       .kind = RuleKind::directs,
       .aliases = {"ngms"}});
  return r;
}

}  // namespace ebb::guidance_rules
