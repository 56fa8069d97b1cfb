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

// Plan::watch() for as long as this lives.
class Watched {
 public:
  Watched(Plan& plan, std::function<void(double)> watch) : plan_(plan) {
    plan_.watch(std::move(watch));
  }
  ~Watched() { plan_.watch({}); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  Plan& plan_;
};

// Plans for images, whole or in the largest tiles whose plan fits into memory.
class TiledPlans {
 public:
  // `tilings` of an image, those of large tiles first.
  using Tilings = std::function<std::vector<Tiling>(const Shape& image)>;
  TiledPlans(SizedPlans::Compile compile, Tilings tilings)
      : plans_(std::move(compile)), tilings_(std::move(tilings)) {}

  // Tiles of a larger side are not used any more, where there are smaller ones; 0: all are.
  void set_largest(int64_t side);
  // In use for such images from now on. Throws OutOfMemory where the smallest tiles do not fit.
  struct Use {
    Plan& plan;  // of a tile
    const Tiling& tiling;
    bool chosen;  // anew: the size, or what is the largest, was another before
  };
  Use use(const Shape& image);
  // What the plan of the largest tiles needs up to this side; compiles it.
  PlanNeeds needs(const Shape& image, int64_t largest);
  // The plan of the whole.
  Plan& whole(const Shape& image) { return plans_.of(image); }
  void release() { plans_.release(); }

 private:
  std::vector<Tiling> up_to(const Shape& image, int64_t largest) const;

  SizedPlans plans_;
  Tilings tilings_;
  int64_t largest_ = 0;
  Tiling tiling_;
  Shape image_;  // that the tiling is for
};

}  // namespace ebb
