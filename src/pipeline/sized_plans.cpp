#include "pipeline/sized_plans.h"

#include <algorithm>

namespace ebb {

Plan& SizedPlans::of(const Shape& size) {
  constexpr size_t most = 4;
  const auto known = std::ranges::find_if(plans_, [&](const auto& p) { return p.first == size; });
  if (known != plans_.end()) {
    plans_.splice(plans_.begin(), plans_, known);
  } else {
    plans_.emplace_front(size, std::make_unique<Plan>(compile_(size)));
    if (plans_.size() > most) plans_.pop_back();
  }
  return *plans_.front().second;
}

Plan& SizedPlans::use(const Shape& size) {
  Plan& plan = of(size);
  for (auto& [other, p] : plans_)
    if (p.get() != &plan) p->release();
  return plan;
}

void SizedPlans::drop(const Shape& size) {
  std::erase_if(plans_, [&](const auto& p) { return p.first == size; });
}

void SizedPlans::release() {
  for (auto& [size, plan] : plans_) plan->release();
}

}  // namespace ebb
