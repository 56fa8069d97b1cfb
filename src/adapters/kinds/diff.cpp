// Full differences of weights, biases and norms, and weights that replace the network's.
#include "adapters/kind.h"
#include "base/error.h"
#include "nn/ops.h"

namespace ebb::adapters::kinds {
namespace {

int64_t rank(const Module& m, const WeightSize& w) {
  m.expect_numel(m.has("set") ? "set" : "diff", w.numel(), w);
  return 0;
}

Value delta(const DeltaInputs& in) {
  const auto shaped = [&](std::string_view role) {
    return ops::reshape(in.tensor(role), {in.size.out, in.size.in, in.size.taps});
  };
  if (in.has("set")) return (shaped("set") - in.weight) * in.scale;
  return shaped("diff") * in.scale;
}

}  // namespace

const AdapterKind& diff() {
  static const AdapterKind k{.name = "full difference",
                             .help = "the difference itself",
                             .roles = {{".diff", "diff"},
                                       {".w_norm", "diff"},
                                       {".set_weight", "set"},
                                       {".diff_b", "bias_diff"},
                                       {".b_norm", "bias_diff"}},
                             .main = "",
                             .bias_role = "bias_diff",
                             .reads_weight = true,
                             .rank = rank,
                             .delta = delta};
  return k;
}

}  // namespace ebb::adapters::kinds
