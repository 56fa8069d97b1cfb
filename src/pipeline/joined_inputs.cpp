#include "pipeline/joined_inputs.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace ebb {
namespace {

bool same_types(const NamedTensors& a, const NamedTensors& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.type() == y.second.type();
  });
}

bool same_steps(const RunConditions::Steps& a, const RunConditions::Steps& b) {
  return a.end_step == b.end_step && a.end_control == b.end_control &&
         std::ranges::equal(a.branches, b.branches, same_types);
}

bool same_conditions(const RunConditions& a, const RunConditions& b) {
  return a.by_evaluation == b.by_evaluation && a.controls_look_back == b.controls_look_back &&
         std::ranges::equal(a.branches, b.branches,
                            [](const ConditionBranch& x, const ConditionBranch& y) {
                              return x.branch == y.branch && x.weight == y.weight;
                            }) &&
         std::ranges::equal(a.steps, b.steps, same_steps);
}

bool same_type(const Tensor& a, const Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || a.type() == b.type());
}

// Of tensors [1,...], one an image, or of the first one where all are not defined.
Tensor rows_of(std::span<const RunInputs* const> images, const auto& value) {
  const Tensor& first = value(*images[0]);
  if (!first.defined()) return {};
  Shape shape = first.shape();
  shape[0] = static_cast<int64_t>(images.size());
  Tensor out(first.dtype(), shape);
  auto* to = static_cast<char*>(out.raw());
  for (const RunInputs* image : images) {
    const Tensor& row = value(*image);
    std::memcpy(to, row.raw(), static_cast<size_t>(row.bytes()));
    to += row.bytes();
  }
  return out;
}

}  // namespace

bool can_join(const RunInputs& a, const RunInputs& b) {
  return same_conditions(a.conditions, b.conditions) && same_type(a.data, b.data) &&
         same_type(a.deviation, b.deviation) && a.noised == b.noised &&
         a.first_step == b.first_step && a.first_evaluation == b.first_evaluation &&
         a.first_draw == b.first_draw && !a.known && !b.known && !a.noise_instead.defined() &&
         !b.noise_instead.defined();
}

RunInputs joined(std::span<const RunInputs* const> images) {
  RunInputs out = *images[0];
  for (const RunInputs* image : images)
    require(can_join(*images[0], *image), "generate: images of these requests go into no batch");
  for (size_t s = 0; s < out.conditions.steps.size(); ++s)
    for (size_t b = 0; b < out.conditions.steps[s].branches.size(); ++b)
      for (auto& [name, value] : out.conditions.steps[s].branches[b])
        value = rows_of(images, [&, &key = name](const RunInputs& of) -> const Tensor& {
          return of.conditions.steps[s].branches[b].at(key);
        });
  out.data = rows_of(images, [](const RunInputs& of) -> const Tensor& { return of.data; });
  out.deviation =
      rows_of(images, [](const RunInputs& of) -> const Tensor& { return of.deviation; });
  return out;
}

}  // namespace ebb
