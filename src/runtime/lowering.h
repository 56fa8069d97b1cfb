// Lowering: the passes from a graph as it was built to one whose nodes each have a kernel on a
// device. Their order is one array, which plans, `ebb explain --stage after:<pass>` and tests use.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "passes/schedule/prepare.h"
#include "runtime/fit.h"
#include "runtime/supporting_kernels.h"
#include "runtime/weight_store.h"

namespace ebb {

struct CompileOptions {
  bool fuse = true;
  Recompute recompute = {};  // of a training step
  // Of a training step: weights that are gathered from other ranks are not kept for the backward
  // pass, but gathered again.
  bool gather_again = false;
  // Whose names the graph's params and states have (all but those that it updates): they need not
  // be bound, what depends on them alone is no part of a run, and plans share them.
  std::shared_ptr<WeightStore> weights = nullptr;
};

// What passes know beside the graph, and what one of them leaves for the plan.
struct Lowering {
  const Device& device;
  const CompileOptions& options;
  LoweringMode mode = LoweringMode::no_recompute;
  // The graph after every pass; else after the last one, and after each only to find which pass
  // made the fault that shows there.
  bool verify_each = false;
  SupportingKernels kernels{device};
  PreparedGraph prepared = {};  // what the plan reads of options.weights
  // Weights that passes asked about, and whether they had changes: where one gains or loses them,
  // the graph is another one.
  std::map<std::string, bool, std::less<>> changed = {};

  // Whether the device has any kernel of the op.
  bool has_kernels_of(const OpDef& op) const;
  // The kernel of least cost for a use; null: it has none.
  const Kernel* preferred(const Signature& s);
  // Whether a use of an op has a kernel.
  std::function<bool(const Signature&)> supported();
};

struct Pass {
  std::string_view name;
  std::string_view what;  // for people
  Graph (*run)(const Graph& g, Lowering& l);
  // The op that it makes nodes of, and runs only where the device has kernels of; null: any.
  const OpDef& (*makes)() = nullptr;
  bool (*when)(const Lowering& l) = nullptr;  // null: always

  bool runs(const Lowering& l) const;
};

// In the order in which they run.
std::span<const Pass> lowering_passes();

// The graph behind the passes up to `last`, behind all where it is empty. Throws Error where the
// verifier finds a fault, naming the pass that made it, and for a name that is no pass.
Graph lowered(const Graph& g, Lowering& l, std::string_view last = "");

// The graph that a plan would run on the device.
Graph lowered_for(const Graph& g, const Device& device, const CompileOptions& options = {});

}  // namespace ebb
