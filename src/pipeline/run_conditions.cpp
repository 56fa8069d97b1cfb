#include "pipeline/run_conditions.h"

#include <algorithm>

#include "base/error.h"

namespace ebb {

std::vector<nn::Condition> RunConditions::conditions(
    const std::vector<nn::Condition>& known) const {
  std::vector<nn::Condition> out;
  if (empty()) return out;
  for (const Steps& s : steps)
    require(s.branches.size() == branches.size(), "conditions: a part of the run has ",
            s.branches.size(), " branches of ", branches.size());
  for (const auto& [name, first] : steps[0].values()) {
    const auto c = std::ranges::find(known, name, &nn::Condition::name);
    require(c != known.end(), "conditions: the network takes no '", name, "'");
    const int64_t images = first.shape().rank() > 0 ? first.shape()[0] : 1;
    for (const Steps& s : steps)
      for (const NamedTensors& branch : s.branches) {
        const auto value = branch.find(name);
        require(value != branch.end(), "conditions: '", name, "' is missing in a part of the run");
        c->check(value->second, images, "conditions");
        require(value->second.type() == first.type(), "conditions: '", name,
                "' must keep its type during a run (", first.type(), " and ", value->second.type(),
                ")");
      }
    out.push_back(c->sized_as(first));
  }
  return out;
}

const RunConditions::Steps& RunConditions::at(int64_t step, int64_t control_step) const {
  require(!empty(), "conditions: there are none");
  const auto found = std::ranges::find_if(steps, [&](const Steps& s) {
    return (step <= s.end_step || s.end_step == steps.back().end_step) &&
           control_step <= s.end_control;
  });
  return found == steps.end() ? steps.back() : *found;
}

void RunConditions::add(std::string_view name, const Tensor& value) {
  require(!empty(), "conditions: there are none");
  for (Steps& s : steps)
    for (NamedTensors& branch : s.branches) branch.insert_or_assign(std::string(name), value);
}

std::vector<Branch> RunConditions::evaluated(bool guided) const {
  std::vector<Branch> out;
  for (const ConditionBranch& b : branches) out.push_back(b.branch);
  if (!guided && out.size() == 2 && branches[0].weight == 1) out.resize(1);
  return out;
}

std::vector<double> RunConditions::weights() const {
  std::vector<double> out;
  for (const ConditionBranch& b : branches)
    if (b.branch == Branch::cond) out.push_back(b.weight);
  return out;
}

Tensor repeated(const Tensor& value, int64_t batch) {
  Shape shape = value.shape();
  if (shape[0] == batch) return value;
  shape[0] = batch;
  Tensor out(value.dtype(), shape);
  const auto from = static_cast<const char*>(value.raw());
  for (int64_t i = 0; i < batch; ++i)
    std::copy_n(from, value.bytes(), static_cast<char*>(out.raw()) + i * value.bytes());
  return out;
}

}  // namespace ebb
