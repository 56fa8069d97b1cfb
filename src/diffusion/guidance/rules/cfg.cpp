// cfg: classifier-free guidance, u + s (c - u) (Ho and Salimans 2022, arXiv:2207.12598).
#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

class Cfg : public Guidance {
 public:
  explicit Cfg(const ScaleOptions& o) : o_(o) {}
  std::optional<Factors> factors(const StepContext& m) const override {
    const double s = o_.at(m);
    return Factors{}.add(Branch::uncond, 1 - s).add(Branch::cond, s);
  }

 private:
  ScaleOptions o_;
};

}  // namespace

const GuidanceRule& cfg() {
  static const GuidanceRule r = make_rule<Cfg, ScaleOptions>(
      {.name = "cfg", .help = "classifier-free guidance, u + s (c - u)"});
  return r;
}

}  // namespace ebb::guidance_rules
