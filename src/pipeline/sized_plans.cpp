#include "pipeline/sized_plans.h"

#include <algorithm>

#include "base/error.h"
#include "core/out_of_memory.h"

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

void TiledPlans::set_largest(int64_t side) {
  if (largest_ != side) image_ = {};
  largest_ = side;
}

// One of each shape of tiles, and at least one.
std::vector<Tiling> TiledPlans::up_to(const Shape& image, int64_t largest) const {
  const std::vector<Tiling> all = tilings_(image);
  const int64_t longer = std::max(image[1], image[2]);
  std::vector<Tiling> out;
  for (const Tiling& t : all) {
    const int64_t side = std::min(t.tile, longer);
    const bool small = largest == 0 || side <= largest, new_one = out.empty() || t.tile < longer;
    if ((small || &t == &all.back()) && new_one) out.push_back(t);
  }
  return out;
}

PlanNeeds TiledPlans::needs(const Shape& image, int64_t largest) {
  return plans_.of(tile_shape(image, up_to(image, largest).at(0))).needs();
}

TiledPlans::Use TiledPlans::use(const Shape& image) {
  if (image_ == image) return {plans_.use(tile_shape(image, tiling_)), tiling_, false};
  const std::vector<Tiling> all = up_to(image, largest_);
  for (const Tiling& t : all) {
    const Shape tile = tile_shape(image, t);
    try {
      Plan& plan = plans_.use(tile);
      plan.check_memory();
      tiling_ = t, image_ = image;
      return {plan, tiling_, true};
    } catch (const OutOfMemory&) {
      plans_.drop(tile);
      if (&t == &all.back()) throw;
    }
  }
  fail("tiles: there must be tilings");
}

}  // namespace ebb
