// seg: smoothed energy guidance: away from a pass whose self-attention has blurred queries (Hong
// 2024, arXiv:2408.00760).
#include "diffusion/guidance/extra_pass.h"

namespace ebb::guidance_rules {
namespace {

struct Options : ExtraPassOptions {
  Options() : ExtraPassOptions{} {}
};

}  // namespace

const GuidanceRule& seg() {
  static const GuidanceRule r = make_rule<ExtraPass<Branch::cond, Branch::smoothed>, Options>(
      {.name = "seg",
       .help = "away from a pass whose attention is blurred",
       .kind = RuleKind::adds,
       .aliases = {"smoothed_energy"},
       .extra = {Branch::smoothed}});
  return r;
}

}  // namespace ebb::guidance_rules
