// The networks of benches, and how their plans are timed.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/model.h"
#include "runtime/graph_bench.h"
#include "runtime/op_bench.h"
#include "runtime/plan.h"
#include "runtime/weight_store.h"

namespace ebb {

struct NetworkCase {
  std::string name, model, settings;
  int64_t batch;
  ImageSize size = {};  // what network_inputs() takes
  // Of training: a checkpoint's weights, with text states and all else that it reads in their usual
  // sizes; else weights as they are drawn, and classes.
  bool checkpoint = false;
  int64_t rank = 0;  // of a LoRA of all attention blocks, which alone is trained; 0: all weights
  bool frozen_in_8_bits = false;  // of a LoRA: the weights that it changes
};

// Small enough for a processor, in f32 and bf16.
std::vector<NetworkCase> small_networks();
// For accelerators, in bf16.
std::vector<NetworkCase> large_networks();
// For accelerators, in bf16: checkpoints with latents and text states, of which only training steps
// are measured.
std::vector<NetworkCase> finetuned_networks();
// For accelerators, in bf16, of which only evaluations are measured.
std::vector<NetworkCase> sampled_networks();
NamedModel model_of(const NetworkCase& c);

constexpr int profile_runs = 10;

// As a file has them, a hash of name and index each.
std::shared_ptr<WeightStore> hashed_weights(const NamedModel& m);

// A plan of `op`/`example`, its output, and how long it takes; `check`: the norm of the output and
// projections, for comparisons with other programs. Throws Error unless the output is finite.
struct Timed {
  std::string op, example;
  DType dtype;
};
BenchResult timed_evaluation(const Context& context, const Timed& what, Plan& plan,
                             const NamedTensors& inputs, const Tensor& output, Ceilings& ceilings);
double l2_norm(std::span<const float> v);

// Of runs of a plan whose inputs were loaded, on the device; on the host with their copies.
Timing time_plan(Device& device, Plan& plan, const NamedTensors& inputs, int runs);

// The fields of a result that a plan and the time of `runs` of it give; `op` and `example` name it.
BenchResult result_of_plan(const Context& context, Plan& plan, const NamedTensors& inputs, int runs,
                           DType dtype, Ceilings& ceilings);

// That of a few repeated runs on the host's clock: their median, and their range over it.
struct RunsOf {
  std::string op, example, dtype, kernel;
};
BenchResult result_of_runs(const Context& context, const RunsOf& what, std::vector<double> seconds);

}  // namespace ebb
