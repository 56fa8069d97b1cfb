// StepPlans: the plans of a training step, one for each shape that batches have. All work on the
// same weights, moments and averages, in one arena.
#pragma once

#include <memory>
#include <vector>

#include "runtime/plan.h"
#include "train/step.h"

namespace ebb::train {

// Whether the plan's inputs of these names have these types.
bool takes(const Plan& plan, const NamedTensors& batch);

class StepPlans {
 public:
  struct Losses {
    const Graph& first;
    const std::vector<Graph>& others;  // equal but for the shapes of their inputs
  };
  // Compiles all of them.
  StepPlans(const Losses& losses, const StepOptions& options, const Context& context,
            const CompileOptions& how);

  // The one that weights, moments and averages are bound to. Afterwards connect() gives them to all
  // others.
  Plan& first() { return steps_.front()->step; }
  const Plan& first() const { return steps_.front()->step; }
  void connect();
  // Throws Error unless the device has the memory, and `others` bytes that are taken as well.
  void check_memory(int64_t others) const;

  // The step's plan for a batch, or, with accumulation, that of its micro-batches but the last.
  // Throws Error for a batch of other shapes.
  Plan& of(const NamedTensors& batch, bool last);
  std::vector<const Plan*> all() const;
  int64_t arena_bytes() const;  // of the largest

 private:
  struct Shaped {
    Plan step;
    std::unique_ptr<Plan> accumulation;
  };
  std::vector<std::unique_ptr<Shaped>> steps_;
};

}  // namespace ebb::train
