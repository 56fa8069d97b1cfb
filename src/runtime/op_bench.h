// Benches of ops: verified, then timed with cold caches, as a share of the machine's measured
// limits.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/context.h"
#include "runtime/profile.h"

namespace ebb {

// The best that the machine did: on large copies and matrix products, or on any case since.
struct Ceilings {
  double bytes_per_second = 0;
  double flops_f32 = 0;
  double flops_bf16 = 0;

  // Per cent of the nearer ceiling that work reaches in so many seconds; its floating-point
  // operations count where it is matrix work in `matrix`. Work that is faster than a ceiling raises
  // it, and reaches 100.
  double percent(const Cost& work, double seconds, std::optional<DType> matrix);
};
Ceilings measure_ceilings(const Context& context);

struct BenchResult {
  std::string op, example, dtype, device, kernel;
  double us = 0;      // median of the rounds
  double spread = 0;  // (90th - 10th percentile) / median
  double gb_per_s = 0, tflop_per_s = 0;
  double peak_percent = 0;  // of the nearer of the two ceilings
  double memory_gb = 0;     // of a plan: weights and states, and the peak of a run
  // Training steps on an accelerator: host time to enqueue one, and the time from the network's
  // config to the end of the first step.
  double host_us = 0, first_step_s = 0;
  int64_t ranks = 1;  // devices that make a training step together, each of the case's batch
  // Of evaluations of a network with hashed weights and inputs (nn/hashed_weights.h): the l2 norm
  // of the output and its first projections, for another program to compare.
  std::vector<double> check = {};
  std::vector<ProfileLine> profile = {};  // of a plan, if asked for
};

// "op/example" of everything that bench_ops() can run on the device.
std::vector<std::string> op_bench_names(const Device& device);

// Runs the bench examples of every op whose "op/example" contains `filter`, in each dtype of its
// examples' float inputs (f32, bf16), and calls `report` with each result. Checks each kernel
// first: against the op's reference on the small examples, and on the timed one that every element
// is written, finite and reproducible. Throws Error if not. On devices with memory of their own
// only the preferred kernels run, and graph_cases() in addition.
void bench_ops(const Context& context, const std::string& filter, Ceilings& ceilings,
               const std::function<void(const BenchResult&)>& report);

}  // namespace ebb
