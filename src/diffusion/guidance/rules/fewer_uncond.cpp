// fewer_uncond: leaves the unconditional pass out early, and in every other step late (the "NGMS"
// and "skip early" options of Stable Diffusion web UI). The rules after it do not guide then.
#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

struct Options {
  double below = 0;
  bool every = false;
  double early = 0;
  void fields(auto&& f) {
    f("below", below, "odd steps (from 0) at noise levels below this do without");
    f("every", every, "even steps there too");
    f("early", early, "steps up to this share of all do without; 0: none");
  }
  void check() const {
    require(below >= 0, "fewer_uncond: below must not be negative (", below, ")");
    require(early >= 0 && early <= 1, "fewer_uncond: early must lie in [0, 1] (", early, ")");
  }
};

class FewerUncond : public Guidance {
 public:
  explicit FewerUncond(const Options& o) : o_(o) {}
  void direct(Moment& m) const override {
    const bool late = (o_.every || m.step % 2 == 1) && m.sigma < o_.below;
    const double share = static_cast<double>(m.step) / static_cast<double>(m.steps);
    m.off = m.off || late || (o_.early > 0 && share <= o_.early);
  }

 private:
  Options o_;
};

}  // namespace

const GuidanceRule& fewer_uncond() {
  static const GuidanceRule r = make_rule<FewerUncond, Options>(
      {.name = "fewer_uncond", .help = "no unconditional pass early, or in odd late steps"});
  return r;
}

}  // namespace ebb::guidance_rules
