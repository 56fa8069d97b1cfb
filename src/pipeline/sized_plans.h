// SizedPlans: an entry point of a component for inputs of several sizes. One of its plans has
// memory at a time.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <utility>

#include "pipeline/component.h"

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

}  // namespace ebb
