#include "train/diagnose.h"

#include <cmath>

namespace ebb::train {
namespace {

template <class T>
int64_t find(const T* v, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (!std::isfinite(static_cast<float>(v[i]))) return i;
  return -1;
}

std::string place(const Type& type, int64_t at) { return str(type, " element ", at); }

std::string bad_source(const Plan& plan, const NamedTensors& inputs) {
  for (const Source& s : plan.graph().sources()) {
    const auto given = inputs.find(s.name);
    const bool input = s.kind == Source::Kind::input;
    if (input && given == inputs.end()) continue;
    const Tensor t = input ? given->second : plan.fetch(s.name);
    // the sum of gradients is a result of this very step
    if (s.name.starts_with("acc.")) continue;
    const int64_t at = find_not_finite(t.type(), t.raw());
    if (at >= 0) return str(input ? "input '" : "tensor '", s.name, "'  ", place(t.type(), at));
  }
  return "";
}

}  // namespace

int64_t find_not_finite(const Type& type, const void* data) {
  if (!is_float(type.dtype)) return -1;
  return visit_dtype(type.dtype, [&](auto zero) -> int64_t {
    return find(static_cast<const decltype(zero)*>(data), type.shape.numel());
  });
}

std::string first_not_finite(Plan& plan, const NamedTensors& inputs) {
  std::string found = bad_source(plan, inputs);
  if (!found.empty()) return found;
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
