#include "pipeline/model_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "diffusion/loss.h"
#include "models/model.h"
#include "runtime/plan.h"
#include "train/step.h"

namespace ebb {
namespace {

struct ModelCase {
  std::string name, model, settings;
  int64_t batch;
};

std::vector<ModelCase> model_cases() {
  return {{"tiny", "tiny", "", 64},
          {"songunet", "ddpmpp_cifar10", "{model_channels=64 dropout=0}", 16},
          {"adm", "unet64", "{dropout=0}", 8}};
}

struct Network {
  Graph loss;
  std::map<std::string, Tensor> weights;
};

Network make_network(const ModelCase& m) {
  NamedModel named = find_model(m.model);
  parse_fields(named.config.fields(), m.settings);
  const CommonConfig& c = named.config.common();
  const nn::Network network = network_of(*named.model, named.config);
  Graph alone;
  network(alone, network_inputs(alone, c, 1));
  return {loss_graph({}, network,
                     {.batch = m.batch,
                      .image = {c.image_size, c.image_size, c.in_channels},
                      .labels = c.classes > 0}),
          nn::initial_tensors(nn::weights_of(alone), 1)};
}

// A step with weights of its own; `inputs` are the same for the same network.
struct TrainingStep {
  Plan plan;
  NamedTensors inputs;
};

TrainingStep make_step(const Network& n, DType dtype, bool fuse, const Context& context) {
  const train::StepOptions options{.dtype = dtype};
  TrainingStep s{Plan(train::train_step(n.loss, options), context, {.fuse = fuse}), {}};
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

BenchResult time_step(TrainingStep& s, const Ceilings& ceilings, DType dtype) {
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
  const Cost cost = s.plan.cost();
  const double median = times[times.size() / 2];
  const double peak = dtype == DType::f32 ? ceilings.flops_f32 : ceilings.flops_bf16;
  return {.op = "train_step",
          .us = median * 1e6,
          .spread = (times[times.size() * 9 / 10] - times[times.size() / 10]) / median,
          .gb_per_s = cost.bytes / median * 1e-9,
          .tflop_per_s = cost.flops / median * 1e-12,
          .peak_percent = 100 * cost.flops / peak / median};
}

}  // namespace

void bench_models(const Context& context, const std::string& filter, const Ceilings& ceilings,
                  const std::function<void(const BenchResult&)>& report) {
  for (const ModelCase& m : model_cases()) {
    if (("train_step/" + m.name).find(filter) == std::string::npos) continue;
    const Network network = make_network(m);
    TrainingStep plain = make_step(network, DType::f32, false, context);
    const NamedTensors want = plain.plan.run(plain.inputs);
    for (const DType d : {DType::f32, DType::bf16}) {
      if (!context.device->fast_in(d)) continue;
      TrainingStep s = make_step(network, d, true, context);
      check_step(m, s.plan.run(s.inputs), want, d);
      BenchResult r = time_step(s, ceilings, d);
      r.example = m.name;
      r.dtype = str(d);
      r.device = std::string(context.device->backend());
      r.kernel = "plan";
      report(r);
    }
  }
}

}  // namespace ebb
