// scale_steps: a scale for every step, as text like 7x10+1x5: 7 for ten steps, then 1 for five.
#include "base/error.h"
#include "base/text.h"
#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

struct Options {
  std::string scales = "7.5";
  void fields(auto&& f) {
    f("scales", scales, "scale[xsteps] joined by +, such as 7x10+1x5; the last holds to the end");
  }
};

std::vector<double> read_scales(std::string_view text) {
  std::vector<double> out;
  for (const std::string_view part : parted(text, "+")) {
    const size_t times = part.find('x');
    const int64_t steps =
        times == part.npos ? 1 : parse_integer(part.substr(times + 1), "scale_steps: scales");
    require(steps > 0 && steps <= 100000, "scale_steps: a scale must hold for 1 to 100000 steps (",
            steps, ")");
    const double scale = parse_number(part.substr(0, times), "scale_steps: scales");
    require(std::isfinite(scale), "scale_steps: scales must be finite (", scale, ")");
    out.insert(out.end(), static_cast<size_t>(steps), scale);
  }
  return out;
}

class ScaleSteps : public Guidance {
 public:
  explicit ScaleSteps(const Options& o) : scales_(read_scales(o.scales)) {}
  void direct(StepContext& m) const override {
    m.scale = scales_[std::min(static_cast<size_t>(m.step), scales_.size() - 1)];
  }

 private:
  std::vector<double> scales_;
};

}  // namespace

const GuidanceRule& scale_steps() {
  static const GuidanceRule r =
      make_rule<ScaleSteps, Options>({.name = "scale_steps",
                                      .help = "sets the scale of later rules for every step",
                                      .kind = RuleKind::scales});
  return r;
}

}  // namespace ebb::guidance_rules
