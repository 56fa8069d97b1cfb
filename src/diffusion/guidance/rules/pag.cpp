// pag: perturbed-attention guidance: away from a pass whose self-attention passes V on as it is
// (Ahn et al. 2024, arXiv:2403.17377).
#include "diffusion/guidance/extra_pass.h"

namespace ebb::guidance_rules {
namespace {

struct Options : ExtraPassOptions {
  Options() : ExtraPassOptions{} {}
};

}  // namespace

const GuidanceRule& pag() {
  static const GuidanceRule r = make_rule<ExtraPass<Branch::cond, Branch::perturbed>, Options>(
      {.name = "pag",
       .help = "away from a pass whose self-attention is the identity",
       .kind = RuleKind::adds,
       .aliases = {"perturbed_attention"},
       .extra = {Branch::perturbed}});
  return r;
}

}  // namespace ebb::guidance_rules
