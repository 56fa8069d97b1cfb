// interval: the rules after it guide within a range of noise levels and steps only; elsewhere the
// unconditional pass is not made (Kynkaanniemi et al. 2024, arXiv:2404.07724).
#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

class Interval : public Guidance {
 public:
  explicit Interval(const WindowOptions& o) : o_(o) {}
  std::vector<double> edges() const override { return o_.edges(); }
  void direct(StepContext& m) const override { m.off = m.off || !o_.holds(m); }

 private:
  WindowOptions o_;
};

}  // namespace

const GuidanceRule& interval() {
  static const GuidanceRule r = make_rule<Interval, WindowOptions>(
      {.name = "interval",
       .help = "limits later rules to a range of noise levels and steps",
       .kind = RuleKind::directs,
       .aliases = {"guidance_interval"}});
  return r;
}

}  // namespace ebb::guidance_rules
