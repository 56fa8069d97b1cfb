// dynamic_threshold: clips the data to a quantile of itself and divides by that, for data in [-1,
// 1] (Saharia et al. 2022, arXiv:2205.11487, section 2.3).
#include <algorithm>

#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

struct Options {
  double share = 0.995, most = 1;
  void fields(auto&& f) {
    f("share", share, "quantile of the absolute values");
    f("most", most, "the largest divisor");
  }
  void check() const {
    require(share >= 0 && share <= 1, "dynamic_threshold: share must lie in [0, 1] (", share, ")");
    require(most >= 1, "dynamic_threshold: most must be at least 1 (", most, ")");
  }
};

class DynamicThreshold : public Guidance {
 public:
  explicit DynamicThreshold(const Options& o) : o_(o) {}
  std::optional<Factors> factors(const Moment&) const override { return std::nullopt; }
  void apply(GuidedSample& s, const Moment&) override {
    const double limit = std::clamp(quantile(s.result, o_.share), 1.0, o_.most);
    for (double& v : s.result) v = std::clamp(v, -limit, limit) / limit;
  }

 private:
  Options o_;
};

}  // namespace

const GuidanceRule& dynamic_threshold() {
  static const GuidanceRule r = make_rule<DynamicThreshold, Options>(
      {.name = "dynamic_threshold", .help = "clips data to a quantile of itself (Imagen)"});
  return r;
}

}  // namespace ebb::guidance_rules
