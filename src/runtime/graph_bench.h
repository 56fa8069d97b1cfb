// Benches of small graphs on devices with memory of their own: replays of captured graphs, timed by
// events, with so many copies of the data that caches are cold.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "runtime/op_bench.h"
#include "runtime/plan.h"

namespace ebb {

// A graph of inputs only; floats are random.
struct GraphCase {
  std::string op, example;
  DType dtype = DType::f32;  // of the work
  Graph graph;
  double low = -1, high = 1;  // floats
  int64_t integers = 0;       // integers are in [0, integers)
};
// One op on inputs of these types.
GraphCase one_op_case(const OpDef& op, const Example& example, DType dtype);

// Matmuls, convolutions and attention of known networks, norms, AdamW.
std::vector<GraphCase> graph_cases();

// Throws Error unless every float of the results is finite and a second run gives the same bits.
BenchResult bench_graph(const Context& context, const GraphCase& c, Ceilings& ceilings);
Ceilings measure_device_ceilings(const Context& context);

struct Timing {
  double median = 0;  // seconds of one run
  double spread = 0;  // (90th - 10th percentile) / median
  double host = 0;    // host seconds to enqueue one
};
// Times `enqueue(i)`, i = 0, 1, ...: `runs` calls captured in a row, replayed `rounds` times.
Timing time_on_device(Device& device, int runs, int rounds,
                      const std::function<void(int)>& enqueue);

}  // namespace ebb
