#include "train/step_plans.h"

#include <algorithm>

#include "base/error.h"

namespace ebb::train {

bool takes(const Plan& plan, const NamedTensors& batch) {
  return std::ranges::all_of(batch, [&](const auto& one) {
    const Source* s = plan.graph().find_source(one.first);
    return !s || s->kind != Source::Kind::input || plan.graph().type(s->value) == one.second.type();
  });
}

StepPlans::StepPlans(const Losses& losses, const StepOptions& options, const Context& context,
                     const CompileOptions& how) {
  const auto add = [&](const Graph& loss) {
    auto& made = steps_.emplace_back(
        std::make_unique<Shaped>(Shaped{Plan(train_step(loss, options), context, how), nullptr}));
    if (options.accumulate)
      made->accumulation = std::make_unique<Plan>(accumulation_step(loss, options), context, how);
  };
  add(losses.first);
  for (const Graph& loss : losses.others) add(loss);
}

void StepPlans::connect() {
  const auto like_first = [&](Plan& plan) {
    plan.share_arena(first());
    plan.bind_as(first());
  };
  for (const auto& s : steps_) {
    if (s != steps_.front()) like_first(s->step);
    if (s->accumulation) like_first(*s->accumulation);
  }
}

void StepPlans::check_memory(int64_t others) const {
  for (const Plan* plan : all()) plan->check_memory(others);
}

Plan& StepPlans::of(const NamedTensors& batch, bool last) {
  const auto found =
      std::ranges::find_if(steps_, [&](const auto& s) { return takes(s->step, batch); });
  require(found != steps_.end(), "train: there is no plan for batches of this shape (",
          batch.empty() ? Type{} : batch.begin()->second.type(), ")");
  return last ? (*found)->step : *(*found)->accumulation;
}

std::vector<const Plan*> StepPlans::all() const {
  std::vector<const Plan*> out;
  for (const auto& s : steps_) {
    out.push_back(&s->step);
    if (s->accumulation) out.push_back(s->accumulation.get());
  }
  return out;
}

int64_t StepPlans::arena_bytes() const {
  int64_t most = 0;
  for (const Plan* plan : all()) most = std::max(most, plan->arena_bytes());
  return most;
}

}  // namespace ebb::train
