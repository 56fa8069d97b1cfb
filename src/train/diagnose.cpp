#include "train/diagnose.h"

#include <algorithm>
#include <cstring>

namespace ebb::train {
namespace {

// Numbers with all bits of the exponent set are infinite or none.
template <class Bits>
int64_t find(const void* data, int64_t n, Bits exponent) {
  constexpr int64_t block = 4096;
  const auto* bytes = static_cast<const char*>(data);
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t end = std::min(n, begin + block);
    const auto bad = [&](int64_t i) {
      Bits v;
      std::memcpy(&v, bytes + i * static_cast<int64_t>(sizeof v), sizeof v);
      return (v & exponent) == exponent;
    };
    int any = 0;
#pragma omp simd reduction(| : any)
    for (int64_t i = begin; i < end; ++i) any |= bad(i);
    for (int64_t i = begin; any && i < end; ++i)
      if (bad(i)) return i;
  }
  return -1;
}

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

int64_t find_not_finite(const Type& type, const void* data) {
  const int64_t n = type.shape.numel();
  switch (type.dtype) {
    case DType::f32: return find(data, n, uint32_t{0x7f800000});
    case DType::bf16: return find(data, n, uint16_t{0x7f80});
    case DType::f16: return find(data, n, uint16_t{0x7c00});
    default: return -1;
  }
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
