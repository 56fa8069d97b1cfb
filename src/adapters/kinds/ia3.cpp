// IA3 (Liu et al. 2022, arXiv:2205.05638) as LyCORIS has it: W * w along inputs or outputs.
#include "adapters/kind.h"
#include "base/error.h"
#include "nn/ops.h"

namespace ebb::adapters::kinds {
namespace {

int64_t rank(const Module& m, const WeightSize& w) {
  m.expect_numel("on_input", 1, w);
  const int64_t n = m.shape("w").numel();
  if (n != w.in && n != w.out) m.fail_shape("w", str(w.in, " or ", w.out, " numbers"), w);
  return 0;
}

std::vector<std::string> computed_from(const Module&) { return {"w", "on_input"}; }

// The factors in a shape that says along what they go.
AdapterKind::Tensors computed(const Module& m, const AdapterKind::Tensors& t, const WeightSize& w) {
  const bool on_input = t.at("on_input").span<float>()[0] != 0;
  m.expect_numel("w", on_input ? w.in : w.out, w);
  return {{"w", t.at("w").reshape(on_input ? Shape{1, w.in, 1} : Shape{w.out, 1, 1})}};
}

Value delta(const DeltaInputs& in) { return in.weight * (in.tensor("w") * in.scale); }

}  // namespace

const AdapterKind& ia3() {
  static const AdapterKind k{.name = "IA3",
                             .help = "W * w, along inputs or outputs",
                             .roles = {{".weight", "w"}, {".on_input", "on_input"}},
                             .main = "on_input",
                             .reads_weight = true,
                             .rank = rank,
                             .computed = computed,
                             .computed_from = computed_from,
                             .delta = delta};
  return k;
}

}  // namespace ebb::adapters::kinds
