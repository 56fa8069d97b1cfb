// epsilon_scaling: divides the predicted noise, x - D, by a number a little above 1, against the
// bias of errors that add up while sampling (Ning et al. 2023, arXiv:2308.15321).
#include "base/error.h"
#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

struct Options {
  double scaling_factor = 1.005;
  void fields(auto&& f) { f("scaling_factor", scaling_factor, "divides the noise; 1: off"); }
  void check() const {
    require(scaling_factor > 0, "epsilon_scaling: scaling_factor must be positive (",
            scaling_factor, ")");
  }
};

class EpsilonScaling : public Guidance {
 public:
  explicit EpsilonScaling(const Options& o) : o_(o) {}
  std::optional<Factors> factors(const StepContext&) const override {
    if (o_.scaling_factor != 1) return std::nullopt;
    return Factors{.own = 1};
  }
  void apply(GuidedSample& s, const StepContext&) override {
    for (size_t i = 0; i < s.result.size(); ++i)
      s.result[i] = s.state[i] - (s.state[i] - s.result[i]) / o_.scaling_factor;
  }

 private:
  Options o_;
};

}  // namespace

const GuidanceRule& epsilon_scaling() {
  static const GuidanceRule r =
      make_rule<EpsilonScaling, Options>({.name = "epsilon_scaling",
                                          .help = "divides the predicted noise by a constant",
                                          .kind = RuleKind::changes});
  return r;
}

}  // namespace ebb::guidance_rules
