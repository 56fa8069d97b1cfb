// cfg_skipped: cfg whose unconditional prediction lacks some blocks of the network within a
// window: skip-layer guidance without a third pass (stable-diffusion.cpp's `slg_uncond`).
#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

struct Options {
  ScaleOptions scale;
  WindowOptions window{.start = 0.01, .stop = 0.2, .start_excluded = true};
  void fields(auto&& f) {
    scale.fields(f);
    window.fields(f);
  }
  void check() const {
    scale.check();
    window.check();
  }
};

class CfgSkipped : public Guidance {
 public:
  explicit CfgSkipped(const Options& o) : o_(o) {}
  std::vector<double> edges() const override { return o_.window.edges(); }
  std::optional<Factors> factors(const StepContext& m) const override {
    const double s = o_.scale.at(m);
    const Branch from = o_.window.holds(m) ? Branch::skipped_uncond : Branch::uncond;
    return Factors{}.add(from, 1 - s).add(Branch::cond, s);
  }

 private:
  Options o_;
};

}  // namespace

const GuidanceRule& cfg_skipped() {
  static const GuidanceRule r = make_rule<CfgSkipped, Options>(
      {.name = "cfg_skipped",
       .help = "cfg from a pass without some blocks; its default window needs 10 steps",
       .aliases = {"slg_uncond"},
       .extra = {Branch::skipped_uncond}});
  return r;
}

}  // namespace ebb::guidance_rules
