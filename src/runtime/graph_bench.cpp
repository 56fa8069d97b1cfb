#include "runtime/graph_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/random.h"
#include "ops/neg/op.h"
#include "ops/prim/matmul/op.h"

namespace ebb {
namespace {

// Random, never zero: zeros run faster than real data. Long tensors repeat themselves, which costs
// the host less and makes no difference to the device.
Tensor random_input(const Type& type, const GraphCase& c, uint64_t seed) {
  constexpr int64_t period = 1 << 20;
  Tensor t(is_float(type.dtype) ? Type{DType::f32, type.shape} : type);
  const int64_t count = std::min<int64_t>(t.numel(), period);
  std::vector<float> unit(static_cast<size_t>(count));
  fill_uniform({.seed = seed}, 0, unit);
  visit_dtype(t.dtype(), [&]<class T>(T) {
    if constexpr (std::is_arithmetic_v<T>) {
      const auto v = t.span<T>();
      for (size_t i = 0; i < v.size(); ++i) {
        const double u = static_cast<double>(unit[i % unit.size()]);
        v[i] = std::is_integral_v<T> ? static_cast<T>(u * static_cast<double>(c.integers))
                                     : static_cast<T>(c.low + (c.high - c.low) * u);
      }
    }
  });
  return is_float(type.dtype) ? t.to(type.dtype) : t;
}

void check_results(const GraphCase& c, const NamedTensors& first, const NamedTensors& second) {
  for (const auto& [name, tensor] : first) {
    const Tensor& other = second.at(name);
    require(std::memcmp(tensor.raw(), other.raw(), static_cast<size_t>(tensor.bytes())) == 0,
            "bench: ", c.op, '/', c.example, " gives different bits in two runs");
    if (!is_float(tensor.dtype())) continue;
    const Tensor values = tensor.to(DType::f32);
    for (const float v : values.span<float>())
      require(std::isfinite(v), "bench: ", c.op, '/', c.example,
              " gives a value that is not finite");
  }
}

// Enough plans, each with data of its own, that a run finds nothing of the run before in a cache.
std::vector<Plan> rotating_plans(const Context& context, const GraphCase& c) {
  constexpr int64_t in_turn = 256 << 20, most = 16;
  std::vector<Plan> plans;
  plans.emplace_back(c.graph, context);
  const int64_t bytes = plans[0].source_bytes() + plans[0].arena_bytes();
  const int64_t count = std::clamp<int64_t>(in_turn / std::max<int64_t>(bytes, 1), 1, most);
  while (static_cast<int64_t>(plans.size()) < count) plans.emplace_back(c.graph, context);
  NamedTensors inputs;
  for (const Source& s : c.graph.sources())
    inputs[s.name] = random_input(c.graph.type(s.value), c, inputs.size() + 1);
  for (Plan& p : plans) p.load(inputs);
  check_results(c, plans[0].run(inputs), plans[0].run(inputs));
  return plans;
}

// Runs per captured graph, so that a replay takes about `seconds`.
int runs_for(double seconds, double one, size_t plans) {
  const auto rounds = std::clamp(seconds / one / static_cast<double>(plans), 1.0, 64.0);
  return static_cast<int>(static_cast<double>(plans) * std::ceil(rounds));
}

// Seconds until run() returns, on a device that has nothing else to do.
double time_of_enqueuing(Device& device, CapturedGraph& captured) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times(9);
  for (double& t : times) {
    device.synchronize();
    const auto start = Clock::now();
    captured.run();
    t = std::chrono::duration<double>(Clock::now() - start).count();
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

Timing time_on_device(Device& device, int runs, int rounds,
                      const std::function<void(int)>& enqueue) {
  const auto captured = device.capture([&] {
    for (int i = 0; i < runs; ++i) enqueue(i);
  });
  require(captured != nullptr, "bench: ", device.backend(), " has no graph capture");
  captured->run();  // warm
  const double host = time_of_enqueuing(device, *captured);
  std::vector<std::unique_ptr<Event>> events;
  events.push_back(device.record_event());
  for (int i = 0; i < rounds; ++i) {
    captured->run();
    events.push_back(device.record_event());
  }
  std::vector<double> times;
  for (size_t i = 1; i < events.size(); ++i)
    times.push_back(events[i]->seconds_since(*events[i - 1]));
  device.synchronize();
  std::sort(times.begin(), times.end());
  const auto at = [&](double q) {
    return times[static_cast<size_t>(q * static_cast<double>(times.size() - 1))];
  };
  return {at(0.5) / runs, (at(0.9) - at(0.1)) / at(0.5), host / runs};
}

GraphCase one_op_case(const OpDef& op, const Example& example, DType dtype) {
  GraphCase c{.op = std::string(op.name),
              .example = example.label,
              .dtype = dtype,
              .low = example.low,
              .high = example.high,
              .integers = example.integers};
  std::vector<Value> in;
  for (Type t : example.in) {
    if (t.dtype == DType::f32) t.dtype = dtype;
    in.push_back(c.graph.input(str("x", in.size()), t));
  }
  for (const Value& y : c.graph.add(op, example.attrs, in))
    c.graph.output(str("y", c.graph.outputs().size()), y);
  return c;
}

BenchResult bench_graph(const Context& context, const GraphCase& c, Ceilings& ceilings) {
  std::vector<Plan> plans = rotating_plans(context, c);
  Device& device = *context.device;
  const auto enqueue = [&](int i) { plans[static_cast<size_t>(i) % plans.size()].enqueue(); };
  const double one = time_on_device(device, static_cast<int>(plans.size()), 3, enqueue).median;
  const Timing t = time_on_device(device, runs_for(2e-3, one, plans.size()), 15, enqueue);

  Cost cost = plans[0].cost();
  BenchResult r{.op = c.op,
                .example = c.example,
                .dtype = str(c.dtype),
                .device = std::string(device.backend())};
  for (const Step& s : plans[0].steps())
    if (s.program.run) r.kernel += str(r.kernel.empty() ? "" : "+", s.kernel->name);
  r.us = t.median * 1e6;
  r.spread = t.spread;
  r.gb_per_s = cost.bytes / t.median * 1e-9;
  r.tflop_per_s = cost.flops / t.median * 1e-12;
  r.memory_gb = static_cast<double>(plans[0].source_bytes() + plans[0].arena_bytes()) * 1e-9;
  const bool matrix =
      std::ranges::any_of(plans[0].steps(), [](const Step& s) { return s.sig.op->matrix_work; });
  r.peak_percent = ceilings.percent(cost, t.median, matrix ? std::optional(c.dtype) : std::nullopt);
  return r;
}

Ceilings measure_device_ceilings(const Context& context) {
  Ceilings c;
  const auto run = [&](const OpDef& op, const Attrs& attrs, const std::vector<Type>& in, DType d) {
    bench_graph(context, one_op_case(op, {.attrs = attrs, .in = in}, d), c);
  };
  run(ops::def::neg(), {}, {{DType::f32, {int64_t{1} << 26}}}, DType::f32);
  const auto product = [&](DType dtype, int64_t m, int64_t n, int64_t k) {
    const Type a{DType::f32, {m, k}}, b{DType::f32, {k, n}};
    run(ops::def::matmul(), ops::Matmul{}, {a, b}, dtype);
  };
  product(DType::f32, 4096, 4096, 4096);
  if (!context.device->fast_in(DType::bf16)) {
    c.flops_bf16 = c.flops_f32;
    return c;
  }
  product(DType::bf16, 8192, 8192, 8192);
  product(DType::bf16, 16384, 4608, 1152);
  return c;
}

}  // namespace ebb
