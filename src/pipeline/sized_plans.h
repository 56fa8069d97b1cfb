// SizedPlans: an entry point of a component for inputs of several sizes. One of its plans has
// memory at a time.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <span>
#include <utility>

#include "pipeline/component.h"
#include "pipeline/tiles.h"

namespace ebb {

class SizedPlans {
 public:
  // Compiles the plan of a size.
  using Compile = std::function<Plan(const Shape& size)>;
  explicit SizedPlans(Compile compile) : compile_(std::move(compile)) {}

  // Compiled if it is not there. Those used last stay.
  Plan& of(const Shape& size);
  // To run it: the others let go of their memory.
  Plan& use(const Shape& size);
  void drop(const Shape& size);
  void release();

 private:
  Compile compile_;
  std::list<std::pair<Shape, std::unique_ptr<Plan>>> plans_;  // the one asked for last first
};

// The largest tiles of an image whose plan fits into memory; it is in use then. `sides` of tiles
// fall; those above `largest` are left out (0: none), but for the last one, which is tried in any
// case. Throws OutOfMemory where that does not fit.
Tiling plan_in_tiles(SizedPlans& plans, const Shape& image, std::span<const int64_t> sides,
                     int64_t largest, const std::function<Tiling(int64_t side)>& tiling_of);

}  // namespace ebb
