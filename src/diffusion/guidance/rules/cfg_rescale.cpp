// cfg_rescale: gives the result the standard deviation of the conditional prediction, in part (Lin
// et al. 2023, arXiv:2305.08891, section 3.4; ComfyUI's multiplier). The form decides: ComfyUI's is
// `mixed`, diffusers' is `raw`.
#include "diffusion/guidance/options.h"

namespace ebb::guidance_rules {
namespace {

struct Options {
  double guidance_rescale = 0.7;
  FormOption form{"mixed"};
  void fields(auto&& f) {
    f("guidance_rescale", guidance_rescale,
      "how much of the conditional standard deviation to restore, in [0, 1]");
    form.fields(f);
  }
  void check() const {
    require(guidance_rescale >= 0 && guidance_rescale <= 1,
            "cfg_rescale: guidance_rescale must lie in [0, 1] (", guidance_rescale, ")");
    form.check();
  }
};

class CfgRescale : public Guidance {
 public:
  explicit CfgRescale(const Options& o) : phi_(o.guidance_rescale), form_(find_form(o.form.form)) {}
  std::optional<Factors> factors(const StepContext&) const override {
    if (phi_ > 0) return std::nullopt;
    return Factors{.own = 1};
  }
  std::vector<Branch> needs(const StepContext&) const override { return {Branch::cond}; }
  Form form() const override { return form_; }
  void apply(GuidedSample& s, const StepContext&) override {
    rescale_to(s.result, s[Branch::cond], phi_);
  }

 private:
  double phi_;
  Form form_;
};

}  // namespace

const GuidanceRule& cfg_rescale() {
  static const GuidanceRule r = make_rule<CfgRescale, Options>(
      {.name = "cfg_rescale",
       .help = "the conditional prediction's standard deviation, after cfg",
       .kind = RuleKind::mends,
       .aliases = {"rescale_cfg", "guidance_rescale"}});
  return r;
}

}  // namespace ebb::guidance_rules
