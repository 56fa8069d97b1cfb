#include "train/diagnose.h"

#include "core/not_finite.h"

namespace ebb::train {
namespace {

std::string place(const Type& type, int64_t at) { return str(type, " element ", at); }

}  // namespace

std::string first_source_not_finite(Plan& plan, const NamedTensors& inputs) {
  plan.load(inputs);
  for (const Source& s : plan.graph().sources()) {
    // the sum of gradients is a result of this very step
    if (s.name.starts_with("acc.")) continue;
    const bool input = s.kind == Source::Kind::input;
    const Tensor t = plan.fetch(s.name);
    const int64_t at = find_not_finite(t.type(), t.raw());
    if (at >= 0) return str(input ? "input '" : "tensor '", s.name, "'  ", place(t.type(), at));
  }
  return "";
}

std::string first_result_not_finite(Plan& plan, const NamedTensors& inputs) {
  std::string found;
  plan.inspect(inputs, [&](size_t i, const std::vector<Tensor>& outputs) {
    const Step& step = plan.steps()[i];
    for (size_t k = 0; k < outputs.size() && found.empty(); ++k) {
      const int64_t at = find_not_finite(outputs[k].type(), outputs[k].raw());
      if (at < 0) continue;
      found = str(step.kernel->name, "  ", place(outputs[k].type(), at));
      if (!step.sig.at.empty()) found += "  at " + step.sig.at;
    }
  });
  return found;
}

}  // namespace ebb::train
