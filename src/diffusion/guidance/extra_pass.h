// ExtraPass: rules that add scale (c - p), where p is the prediction of a pass that something was
// taken from.
#pragma once

#include "diffusion/guidance/options.h"

namespace ebb {

struct ExtraPassOptions {
  double scale = 3;
  WindowOptions window;
  double rescale = 0;
  void fields(auto&& f) {
    f("scale", scale, "times the difference; 0: off");
    window.fields(f);
    f("rescale", rescale, "how much of the conditional prediction's spread the result gets");
  }
  void check() const {
    window.check();
    require(rescale >= 0 && rescale <= 1, "guidance: rescale must lie in [0, 1] (", rescale, ")");
  }
};

template <Ask from, Ask taken>
class ExtraPass : public Guidance {
 public:
  explicit ExtraPass(const ExtraPassOptions& o) : o_(o) {}
  std::optional<Factors> factors(const Moment& m) const override {
    if (o_.scale == 0 || !o_.window.holds(m)) return Factors{.own = 1};
    if (o_.rescale > 0) return std::nullopt;
    return Factors{.own = 1}.add(from, o_.scale).add(taken, -o_.scale);
  }
  std::vector<Ask> needs(const Moment&) const override { return {Ask::cond, from, taken}; }
  void apply(GuidedSample& s, const Moment&) override {
    for (size_t i = 0; i < s.result.size(); ++i)
      s.result[i] += o_.scale * (s[from][i] - s[taken][i]);
    rescale_to(s.result, s[Ask::cond], o_.rescale);
  }

 private:
  ExtraPassOptions o_;
};

}  // namespace ebb
