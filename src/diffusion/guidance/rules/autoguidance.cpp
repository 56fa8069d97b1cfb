// autoguidance: away from what a weaker network predicts (Karras et al. 2024, arXiv:2406.02507).
#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

struct Options {
  double scale = 2;
  WindowOptions window;
  void fields(auto&& f) {
    f("scale", scale, "w of weak + w (c - weak); 1: off");
    window.fields(f);
  }
  void check() const { window.check(); }
};

class Autoguidance : public Guidance {
 public:
  explicit Autoguidance(const Options& o) : o_(o) {}
  std::vector<double> edges() const override { return o_.window.edges(); }
  std::optional<Factors> factors(const StepContext& m) const override {
    if (m.off || is_one(o_.scale) || !o_.window.holds(m)) return Factors{.own = 1};
    return Factors{.own = o_.scale}.add(Branch::weak, 1 - o_.scale);
  }

 private:
  Options o_;
};

}  // namespace

const GuidanceRule& autoguidance() {
  static const GuidanceRule r =
      make_rule<Autoguidance, Options>({.name = "autoguidance",
                                        .help = "away from a weaker network's prediction",
                                        .kind = RuleKind::adds,
                                        .can_be_off = true,
                                        .aliases = {"auto_guidance"},
                                        .extra = {Branch::weak}});
  return r;
}

}  // namespace ebb::guidance_rules
