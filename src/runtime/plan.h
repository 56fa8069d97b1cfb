// Plan: a graph made ready for one device. Nothing is decided, and no memory taken, while it runs.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/kernel.h"
#include "passes/memory.h"
#include "runtime/context.h"

namespace ebb {

using NamedTensors = std::map<std::string, Tensor, std::less<>>;

struct CompileOptions {
  bool fuse = true;
};

// One kernel run.
struct Step {
  const Kernel* kernel = nullptr;
  Signature sig;
  Program program;
  Call call;
};

class Plan {
 public:
  // Lowers, fuses and places `g` for the context's device; memory is taken by the first run. Throws
  // Error.
  Plan(const Graph& g, Context context, const CompileOptions& options = {});

  // Gives a param or state its memory: used in place, read and updated by every run. The tensor
  // must have the source's type. Throws Error.
  void bind(std::string_view name, const Tensor& tensor);
  // Allocates zeros for what is not bound yet.
  void bind_missing();
  const Tensor& bound(std::string_view name) const;

  // Runs once. Every input must be given, with its type. Returns copies of the outputs, on the
  // host. Throws Error.
  NamedTensors run(const NamedTensors& inputs);

  const Graph& graph() const { return graph_; }
  const std::vector<Step>& steps() const { return steps_; }
  int64_t arena_bytes() const { return memory_.arena_bytes; }  // the exact peak of a run
  int64_t source_bytes() const;                                // inputs, params, states
  Cost cost() const;                                           // of a run: the steps' together
  // The plan stage of `ebb explain`: steps with kernels, types, bytes, FLOPs, and the peak.
  std::string text() const;
  // Called after every step with its index and seconds, to profile.
  void observe(std::function<void(size_t, double)> observer) { observer_ = std::move(observer); }

 private:
  void prepare(const std::vector<const Kernel*>& kernels, std::vector<Program> programs);
  void resolve();
  void* address(int32_t value) const;
  Tensor placed(int32_t value) const;  // on the device
  void run_steps();

  Context context_;
  Graph graph_;
  MemoryPlan memory_;
  std::vector<Step> steps_;
  std::vector<Tensor> sources_;  // by index into graph_.sources()
  std::shared_ptr<Buffer> arena_;
  bool resolved_ = false;
  std::function<void(size_t, double)> observer_;
};

// The graph as `ebb explain --stage fused` shows it: what Plan would run on the device.
Graph lowered_for(const Graph& g, const Device& device, const CompileOptions& options = {});

}  // namespace ebb
