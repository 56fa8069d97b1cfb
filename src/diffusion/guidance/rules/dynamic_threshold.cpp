// dynamic_threshold: clips the data to a quantile of itself and divides by that, for data in [-1,
// 1] (Saharia et al. 2022, arXiv:2205.11487, section 2.3).
#include <algorithm>

#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

struct Options {
  double ratio = 0.995, sample_max_value = 1;
  void fields(auto&& f) {
    f("ratio", ratio, "quantile of the absolute values, in [0, 1]");
    f("sample_max_value", sample_max_value, "the largest divisor, at least 1");
  }
  void check() const {
    require(ratio >= 0 && ratio <= 1, "dynamic_threshold: ratio must lie in [0, 1] (", ratio, ")");
    require(sample_max_value >= 1, "dynamic_threshold: sample_max_value must be at least 1 (",
            sample_max_value, ")");
  }
};

class DynamicThreshold : public Guidance {
 public:
  explicit DynamicThreshold(const Options& o) : o_(o) {}
  std::optional<Factors> factors(const StepContext&) const override { return std::nullopt; }
  void apply(GuidedSample& s, const StepContext&) override {
    const double limit = std::clamp(quantile(s.result, o_.ratio), 1.0, o_.sample_max_value);
    for (double& v : s.result) v = std::clamp(v, -limit, limit) / limit;
  }

 private:
  Options o_;
};

}  // namespace

const GuidanceRule& dynamic_threshold() {
  static const GuidanceRule r =
      make_rule<DynamicThreshold, Options>({.name = "dynamic_threshold",
                                            .help = "clips data to a quantile of itself (Imagen)",
                                            .kind = RuleKind::changes,
                                            .aliases = {"thresholding", "imagen_threshold"}});
  return r;
}

}  // namespace ebb::guidance_rules
