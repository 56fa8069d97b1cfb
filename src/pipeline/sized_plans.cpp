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

Tiling plan_in_tiles(SizedPlans& plans, const Shape& image, std::span<const int64_t> sides,
                     int64_t largest, const std::function<Tiling(int64_t side)>& tiling_of) {
  for (const int64_t side : sides) {
    const bool last = side == sides.back();
    if (largest > 0 && side > largest && !last) continue;
    const Tiling tiling = tiling_of(side);
    const Shape tile = tile_shape(image, tiling);
    try {
      plans.use(tile).check_memory();
      return tiling;
    } catch (const OutOfMemory&) {
      plans.drop(tile);
      if (last) throw;
    }
  }
  fail("tiles: must have sides");
}

}  // namespace ebb
