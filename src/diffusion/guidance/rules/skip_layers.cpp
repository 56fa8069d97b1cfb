// skip_layers: skip-layer guidance: away from a pass without some blocks of the network (7, 8 and 9
// for SD3.5 medium).
#include "diffusion/guidance/extra_pass.h"

namespace ebb::guidance_rules {
namespace {

struct Options : ExtraPassOptions {
  Options()
      : ExtraPassOptions{.scale = 2.8,
                         .window = {.start = 0.01, .stop = 0.2, .start_excluded = true}} {}
};

}  // namespace

const GuidanceRule& skip_layers() {
  static const GuidanceRule r = make_rule<ExtraPass<Branch::cond, Branch::skipped>, Options>(
      {.name = "skip_layers",
       .help = "away from a pass without some blocks; its default window needs 10 steps",
       .kind = RuleKind::adds,
       .aliases = {"slg", "skip_layer_guidance"},
       .extra = {Branch::skipped}});
  return r;
}

}  // namespace ebb::guidance_rules
