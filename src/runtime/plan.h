// Plan: a graph made ready for one device. Nothing is decided, and no memory taken, while it runs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/kernel.h"
#include "runtime/chosen_kernel.h"
#include "runtime/context.h"
#include "runtime/fit.h"
#include "runtime/lowering.h"
#include "runtime/plan_inputs.h"
#include "runtime/side_stream.h"
#include "runtime/weight_store.h"

namespace ebb {

// What a plan takes of the device's memory when it runs first: `own`, then `weights`, then `arena`.
struct PlanNeeds {
  int64_t own = 0;  // inputs and states that it has no memory for yet
  WeightNeeds weights = {};
  int64_t arena = 0;

  int64_t bytes() const;  // at most at once
};

// One kernel run.
struct Step {
  const Kernel* kernel = nullptr;
  Signature sig;
  Program program;
  Call call;
  std::optional<SideStream> side_stream = {};  // where it runs beside others, see side_stream.h
};

class Plan {
 public:
  // Lowers, fuses and places `g` for the context's device; memory is taken by the first run. Throws
  // Error.
  Plan(const Graph& g, Context context, const CompileOptions& options = {});

  // Gives a param or state its memory, read and updated by every run: that of `tensor`, or where
  // the device has memory of its own and `tensor` is the host's, a copy. The tensor must have the
  // source's type. Throws Error.
  void bind(std::string_view name, const Tensor& tensor);
  // Allocates zeros for what is not bound yet.
  void bind_missing();
  // Gives params and states the memory of those of the same names in another plan of the device.
  void bind_as(const Plan& other);
  // What a run needs of the device's memory besides what is bound, or held for others.
  PlanNeeds needs() const;
  int64_t missing_bytes() const { return needs().bytes(); }
  // Throws OutOfMemory unless they are free, and `others` that are taken at the same time: to be
  // asked before weights are made or copied, which may take long.
  void check_memory(int64_t others = 0) const;
  // Both run in one arena from now on, before either has run: for plans that never do at the same
  // time.
  void share_arena(Plan& other);
  // Makes it again where weights that it reads in 16 bits have gained changes since, or lost them
  // (WeightStore::change): their sums are f32. What was bound, kept and set stays. Runs do so by
  // themselves; before needs() and release() it is asked for.
  void refresh();
  // Lets go of weights and of the memory that a run takes, and of inputs unless some are kept; the
  // next run takes them again. What was bound stays.
  void release();
  const Tensor& bound(std::string_view name) const;  // on the device
  Tensor fetch(std::string_view name) const;         // on the host: a copy, or the memory itself

  // Runs once. Every input must be given, here or to keep(), with its type. Returns copies of the
  // outputs, on the host. Throws Error.
  NamedTensors run(const NamedTensors& inputs);
  // Gives an input a value that every run takes which gives it none: what changes seldom is copied
  // to the device once. Throws Error.
  void keep(std::string_view input, const Tensor& value);

  // What run() is made of: load() gives the inputs, enqueue() starts the work on what was loaded
  // last and does not wait. For work that is recorded or timed.
  void load(const NamedTensors& inputs);
  void enqueue();

  const Device& device() const { return *context_.device; }
  const Graph& graph() const { return graph_; }
  const std::vector<Step>& steps() const { return steps_; }
  int64_t arena_bytes() const { return memory_.arena_bytes; }  // the exact peak of a run
  int64_t source_bytes() const;                                // inputs, params, states
  RecomputeCount recomputed() const { return recomputed_; }    // see passes/schedule/recompute.h
  Cost cost() const;                                           // of a run: the steps' together
  // The plan stage of `ebb explain`: steps with kernels, types, bytes, FLOPs, and the peak.
  std::string text() const;
  // As run(), step by step: `look` receives each step's index and outputs, on the host.
  using Look = std::function<void(size_t, const std::vector<Tensor>&)>;
  void inspect(const NamedTensors& inputs, const Look& look);
  // Called within a run with the share of its steps that are done, 0 to 1, where the device runs
  // them one by one (the host does). May throw: then what the plan updates is undefined.
  void watch(std::function<void(double)> watch) { watch_ = std::move(watch); }
  // Called after every run with each step's index and seconds, to profile.
  void observe(std::function<void(size_t, double)> observer) { observer_ = std::move(observer); }

 private:
  std::optional<Fitted> fitted(const std::vector<ChosenKernel>& nodes, const Recompute& r,
                               LoweringMode mode);
  void adopt(std::vector<ChosenKernel>& nodes, Fitted fitted);
  void make_steps(std::vector<ChosenKernel> nodes);
  void log_notes() const;
  std::shared_ptr<Buffer> take(int64_t bytes) const;
  std::shared_ptr<Buffer> take_arena() const;
  int64_t arena_to_take() const;
  [[noreturn]] void fail_memory(int64_t bytes, int64_t free) const;
  size_t index_of(std::string_view source) const;
  void make_inputs();
  void bind_weights();
  std::vector<Tensor> prepared_weights();
  void resolve();
  std::vector<Touched> touched() const;
  void* address(int32_t value) const;
  Tensor placed(int32_t value) const;  // on the device
  void run_steps();
  void run_observed();
  NamedTensors results();

  // What it was made of, where changes of weights may make another plan of it.
  struct Origin {
    Graph graph;
    CompileOptions options;
    std::map<std::string, bool, std::less<>> changed;  // Lowering::changed
    uint64_t version = 0;                              // of the store, when this was true
  };

  Context context_;
  Graph graph_;
  std::shared_ptr<WeightStore> weights_;
  std::unique_ptr<Origin> origin_;  // null: no change does
  PreparedGraph prepared_;          // what it reads of weights_
  uint64_t weights_version_ = 0;
  MemoryPlan memory_;
  RecomputeCount recomputed_;
  std::vector<Step> steps_;
  std::vector<std::optional<SideStream>> side_stream_;  // by step
  std::vector<std::vector<int32_t>> waits_;             // by step: for which on side streams
  PlanInputs inputs_;
  bool inputs_made_ = false;
  std::vector<Tensor> sources_;  // by index into graph_.sources()
  // The arena of several plans, as large as the largest needs it; taken by the first that runs.
  struct SharedArena {
    int64_t bytes = 0;
    std::weak_ptr<Buffer> memory;
  };
  std::shared_ptr<SharedArena> shared_arena_;  // null: its own
  std::shared_ptr<Buffer> arena_;
  bool resolved_ = false;
  std::unique_ptr<CapturedGraph> captured_;  // of the steps, where the device has such
  std::function<void(size_t, double)> observer_;
  std::function<void(double)> watch_;
};

}  // namespace ebb
