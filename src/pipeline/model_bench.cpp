#include "pipeline/model_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "diffusion/loss.h"
#include "models/model.h"
#include "runtime/graph_bench.h"
#include "runtime/plan.h"
#include "train/step.h"

namespace ebb {
namespace {

struct ModelCase {
  std::string name, model, settings;
  int64_t batch;
};

// Small enough for a processor, in f32 and bf16.
std::vector<ModelCase> model_cases() {
  return {{"tiny", "tiny", "", 64},
          {"songunet", "ddpmpp_cifar10", "{model_channels=64 dropout=0}", 16},
          {"adm", "unet64", "{dropout=0}", 8}};
}

// For accelerators, in bf16: the mean square error of the noise, without the bound and averages.
std::vector<ModelCase> large_cases() {
  return {{"unet64", "unet64", "{dropout=0}", 32},
          {"adm64", "adm64", "{dropout=0 learn_sigma=false}", 32},
          {"dit_xl2", "dit_xl2", "{learn_sigma=false}", 64}};
}

struct Network {
  Graph loss;
  std::map<std::string, Tensor> weights;
};

Network make_network(const ModelCase& m, const DiffusionConfig& diffusion) {
  NamedModel named = find_model(m.model);
  parse_fields(named.config.fields(), m.settings);
  const CommonConfig& c = named.config.common();
  const nn::Network network = network_of(*named.model, named.config);
  Graph alone;
  network(alone, network_inputs(alone, *named.model, named.config, 1));
  return {loss_graph(diffusion, network,
                     {.batch = m.batch,
                      .image = {c.image_size, c.image_size, c.in_channels},
                      .conditions = class_conditions(named.config)}),
          nn::initial_tensors(nn::weights_of(alone), 1)};
}

// A step with weights of its own; `inputs` are the same for the same network.
struct TrainingStep {
  Plan plan;
  NamedTensors inputs;
};

TrainingStep make_step(const Network& n, const train::StepOptions& options,
                       const CompileOptions& compile, const Context& context) {
  TrainingStep s{Plan(train::train_step(n.loss, options), context, compile), {}};
  for (const auto& [name, tensor] : n.weights) s.plan.bind(name, tensor.clone());
  s.plan.bind_missing();
  s.inputs = train::step_inputs({.step = 0, .lr = 1e-4}, options);
  for (const Source& source : s.plan.graph().sources()) {
    if (source.kind != Source::Kind::input || s.inputs.contains(source.name)) continue;
    Tensor t(s.plan.graph().type(source.value));
    if (t.dtype() == DType::f32) fill_uniform({.seed = 1}, 0, t.span<float>());
    s.inputs[source.name] = t;
  }
  return s;
}

double number(const NamedTensors& out, const char* name) {
  return static_cast<double>(out.at(name).span<float>()[0]);
}

// bf16 has 8 bits, of which a mean over many values loses few; gradients add up a few per cent.
void check_step(const ModelCase& m, const NamedTensors& have, const NamedTensors& want,
                DType dtype) {
  const double tolerance = dtype == DType::f32 ? 1e-3 : 5e-2;
  for (const char* name : {"loss", "grad_norm"}) {
    const double a = number(have, name), b = number(want, name);
    require(std::isfinite(a) && std::fabs(a - b) <= tolerance * std::fabs(b), "bench: ", m.name,
            " ", dtype, ": ", name, " differs from the unfused f32 step (", a, " for ", b, ")");
  }
}

Timing time_on_host(TrainingStep& s) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  double spent = 0;
  while (times.size() < 5 || (spent < 5 && times.size() < 30)) {
    const auto start = Clock::now();
    s.plan.run(s.inputs);
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    spent += times.back();
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  return {median, (times[times.size() * 9 / 10] - times[times.size() / 10]) / median, 0};
}

// On accelerators the data lie there, as they do in a loop that loads ahead.
BenchResult time_step(TrainingStep& s, const Context& context, const Ceilings& ceilings,
                      DType dtype) {
  constexpr int steps = 30;
  const Timing t = context.device->on_host()
                       ? time_on_host(s)
                       : time_on_device(*context.device, 1, steps, [&](int) { s.plan.enqueue(); });
  const Cost cost = s.plan.cost();
  const double peak = dtype == DType::f32 ? ceilings.flops_f32 : ceilings.flops_bf16;
  return {.op = "train_step",
          .dtype = str(dtype),
          .device = std::string(context.device->backend()),
          .kernel = "plan",
          .us = t.median * 1e6,
          .spread = t.spread,
          .gb_per_s = cost.bytes / t.median * 1e-9,
          .tflop_per_s = cost.flops / t.median * 1e-12,
          .peak_percent = 100 * cost.flops / peak / t.median,
          .memory_gb = static_cast<double>(s.plan.arena_bytes() + s.plan.source_bytes()) * 1e-9,
          .host_us = t.host * 1e6};
}

// The last layers start at zero: the error is the noise's own square, and soon less.
void check_learning(const ModelCase& m, double first, TrainingStep& s) {
  constexpr int steps = 10;
  double last = first;
  for (int i = 1; i < steps; ++i) last = number(s.plan.run(s.inputs), "loss");
  require(std::fabs(first - 1) < 0.05 && last < first, "bench: ", m.name, " does not learn (loss ",
          first, ", after ", steps, " steps ", last, ")");
}

BenchResult bench_large(const Context& context, const ModelCase& m, const Recompute& recompute,
                        const Ceilings& ceilings) {
  const DType dtype = DType::bf16;
  const auto start = std::chrono::steady_clock::now();
  const Network network = make_network(m, {.precond = "eps"});
  TrainingStep s =
      make_step(network, {.dtype = dtype, .ema = false}, {.recompute = recompute}, context);
  const double loss = number(s.plan.run(s.inputs), "loss");
  const std::chrono::duration<double> first_step = std::chrono::steady_clock::now() - start;
  check_learning(m, loss, s);
  BenchResult r = time_step(s, context, ceilings, dtype);
  r.first_step_s = first_step.count();
  r.example = m.name;
  return r;
}

std::string full_name(const ModelCase& m) { return "train_step/" + m.name; }

}  // namespace

std::vector<std::string> model_bench_names(const Device& device) {
  std::vector<std::string> out;
  for (const ModelCase& m : model_cases()) out.push_back(full_name(m));
  if (!device.on_host())
    for (const ModelCase& m : large_cases()) out.push_back(full_name(m));
  return out;
}

void bench_models(const Context& context, const ModelBench& what, const Ceilings& ceilings,
                  const std::function<void(const BenchResult&)>& report) {
  const auto asked = [&](const ModelCase& m) {
    return full_name(m).find(what.filter) != std::string::npos;
  };
  for (const ModelCase& m : model_cases()) {
    if (!asked(m)) continue;
    const Network network = make_network(m, {});
    TrainingStep plain = make_step(network, {.dtype = DType::f32}, {.fuse = false}, context);
    const NamedTensors want = plain.plan.run(plain.inputs);
    for (const DType d : {DType::f32, DType::bf16}) {
      if (!context.device->fast_in(d)) continue;
      TrainingStep s = make_step(network, {.dtype = d}, {.recompute = what.recompute}, context);
      check_step(m, s.plan.run(s.inputs), want, d);
      BenchResult r = time_step(s, context, ceilings, d);
      r.example = m.name;
      report(r);
    }
  }
  if (context.device->on_host()) return;
  for (const ModelCase& m : large_cases())
    if (asked(m)) report(bench_large(context, m, what.recompute, ceilings));
}

}  // namespace ebb
