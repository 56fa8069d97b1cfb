// ExtraPass: rules that add scale (c - p), where p is the prediction of a degraded branch.
#pragma once

#include "diffusion/guidance/options.h"

namespace ebb {

struct ExtraPassOptions {
  double scale = 3;
  WindowOptions window;
  double guidance_rescale = 0;
  void fields(auto&& f) {
    f("scale", scale, "k of + k (c - c_changed); 0: off");
    window.fields(f);
    f("guidance_rescale", guidance_rescale,
      "how much of the conditional standard deviation to restore, in [0, 1]");
  }
  void check() const {
    window.check();
    require(guidance_rescale >= 0 && guidance_rescale <= 1,
            "guidance: guidance_rescale must lie in [0, 1] (", guidance_rescale, ")");
  }
};

template <Branch from, Branch taken>
class ExtraPass : public Guidance {
 public:
  explicit ExtraPass(const ExtraPassOptions& o) : o_(o) {}
  std::vector<double> edges() const override { return o_.window.edges(); }
  std::optional<Factors> factors(const StepContext& m) const override {
    if (o_.scale == 0 || !o_.window.holds(m)) return Factors{.own = 1};
    if (o_.guidance_rescale > 0) return std::nullopt;
    return Factors{.own = 1}.add(from, o_.scale).add(taken, -o_.scale);
  }
  std::vector<Branch> needs(const StepContext&) const override {
    return {Branch::cond, from, taken};
  }
  void apply(GuidedSample& s, const StepContext&) override {
    for (size_t i = 0; i < s.result.size(); ++i)
      s.result[i] += o_.scale * (s[from][i] - s[taken][i]);
    rescale_to(s.result, s[Branch::cond], o_.guidance_rescale);
  }

 private:
  ExtraPassOptions o_;
};

}  // namespace ebb
