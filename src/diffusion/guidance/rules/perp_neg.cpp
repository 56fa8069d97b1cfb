// perp_neg: away from what of the negative prompt is perpendicular to the prompt (Armandpour et al.
// 2023, arXiv:2304.04968). The projection is of one sample; ComfyUI's is of the batch.
#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

struct Options {
  ScaleOptions scale;
  double neg_scale = 1;
  void fields(auto&& f) {
    scale.fields(f);
    f("neg_scale", neg_scale, "strength of the negative prompt; 0: off");
  }
  void check() const { scale.check(); }
};

class PerpNeg : public Guidance {
 public:
  explicit PerpNeg(const Options& o) : o_(o) {}
  std::optional<Factors> factors(const StepContext& m) const override {
    if (m.off) return Factors{}.add(Branch::cond, 1);
    if (o_.neg_scale != 0) return std::nullopt;
    const double s = o_.scale.at(m);
    return Factors{}.add(Branch::empty, 1 - s).add(Branch::cond, s);
  }
  std::vector<Branch> needs(const StepContext&) const override {
    return {Branch::cond, Branch::uncond, Branch::empty};
  }
  void apply(GuidedSample& s, const StepContext& m) override {
    const Values e = s[Branch::empty];
    const auto pos = difference(s[Branch::cond], e), neg = difference(s[Branch::uncond], e);
    const double square = dot(pos, pos), along = square == 0 ? 0 : dot(neg, pos) / square;
    const double scale = o_.scale.at(m);
    for (size_t i = 0; i < e.size(); ++i) {
      const double across = neg[i] - along * pos[i];
      s.result[i] = e[i] + scale * (pos[i] - o_.neg_scale * across);
    }
  }

 private:
  Options o_;
};

}  // namespace

const GuidanceRule& perp_neg() {
  static const GuidanceRule r = make_rule<PerpNeg, Options>(
      {.name = "perp_neg",
       .help = "PerpNeg: of the negative prompt what the prompt does not say",
       .extra = {Branch::empty}});
  return r;
}

}  // namespace ebb::guidance_rules
