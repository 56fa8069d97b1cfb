// sag: self-attention guidance: away from the prediction on a state that is blurred where attention
// is high (Hong et al. 2022, arXiv:2210.00939). sag_blur() computes that state.
#include "diffusion/guidance/extra_pass.h"

namespace ebb::guidance_rules {
namespace {

struct Options : ExtraPassOptions {
  Options() : ExtraPassOptions{.scale = 0.5} {}
};

}  // namespace

const GuidanceRule& sag() {
  static const GuidanceRule r = make_rule<ExtraPass<Branch::sag_input, Branch::sag>, Options>(
      {.name = "sag",
       .help = "away from a pass on a state that is partly blurred",
       .kind = RuleKind::adds,
       .aliases = {"self_attention_guidance"},
       .extra = {Branch::sag_input, Branch::sag}});
  return r;
}

}  // namespace ebb::guidance_rules
