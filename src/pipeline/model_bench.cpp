#include "pipeline/model_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "adapters/trainable.h"
#include "base/error.h"
#include "base/random.h"
#include "diffusion/loss.h"
#include "models/model.h"
#include "nn/hashed_weights.h"
#include "pipeline/bench_cases.h"
#include "pipeline/frozen_weights.h"
#include "runtime/graph_bench.h"
#include "runtime/plan.h"
#include "train/state.h"
#include "train/step.h"

namespace ebb {

namespace {

struct Network {
  Graph loss;
  nn::Weights specs;
  nn::Tensors weights;
};

// Those of a checkpoint in their usual sizes; else classes alone.
std::vector<nn::Condition> conditions_of(const NetworkCase& m, const NamedModel& named) {
  if (!m.checkpoint) return class_conditions(named.config);
  std::vector<nn::Condition> out;
  for (nn::Condition given : named.model->conditions(named.config)) {
    if (given.rare) continue;
    if (given.usual.rank() > 0) given.shape = given.usual;
    out.push_back(given);
  }
  return out;
}

void add_adapter(Network& to, const NamedModel& named, int64_t rank) {
  const adapters::TrainableAdapter adapter(
      {.part = adapters::Network::Part::denoiser, .model = named.model, .config = named.config},
      {.sizes = {.rank = rank}});
  to.loss = adapter.adapted(to.loss);
  to.specs = adapter.weights();
  for (const nn::Weight& w : to.specs)
    if (w.trained) to.weights[w.name] = nn::initial_tensor(w, 1);
}

Network make_network(const NetworkCase& m, const DiffusionConfig& diffusion) {
  const NamedModel named = model_of(m);
  const CommonConfig& c = named.config.common();
  Network out{.loss = loss_graph(diffusion, network_of(*named.model, named.config),
                                 {.batch = m.batch,
                                  .image = {c.image_size, c.image_size, c.in_channels},
                                  .conditions = conditions_of(m, named)}),
              .specs = weights_of(*named.model, named.config),
              .weights = {}};
  for (const nn::Weight& w : out.specs)  // of a checkpoint none is 0
    out.weights[w.name] = m.checkpoint ? nn::hashed_weight(w) : nn::initial_tensor(w, 1);
  const Graph whole = out.loss;
  if (m.rank > 0) add_adapter(out, named, m.rank);
  if (m.frozen_in_8_bits) out.loss = frozen_in_8_bits(out.loss, whole, {});
  return out;
}

// A step with weights of its own; `inputs` are the same for the same network.
struct TrainingStep {
  Plan plan;
  NamedTensors inputs;
};

TrainingStep make_step(const Network& n, train::StepOptions options, CompileOptions compile,
                       const Context& context) {
  options.undecayed = nn::without_decay(n.specs);
  compile.gather_again = options.split.shard == train::Shard::weights;
  TrainingStep s{Plan(train::train_step(n.loss, options), context, compile), {}};
  for (const nn::Weight& w : n.specs) {
    const Tensor& whole = n.weights.at(w.name);
    const bool split = w.trained && train::is_split(whole.type(), options.split);
    const Tensor own = split ? train::part_of(whole, options.split) : whole;
    train::bind_weight(s.plan, w.name, w.trained ? own.clone() : own);
  }
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

// Each rank has the whole batch of a case, and the same inputs.
train::Split split_of(const Context& context, train::Split split) {
  const Communicator* c = context.device->communicator();
  if (c == nullptr) return {};
  split.ranks = c->ranks();
  split.rank = c->rank();
  return split;
}

NetworkCase with_batch(NetworkCase m, int64_t batch) {
  if (batch > 0) m.batch = batch;
  return m;
}

double number(const NamedTensors& out, const char* name) {
  return static_cast<double>(out.at(name).span<float>()[0]);
}

// bf16 has 8 bits, of which a mean over many values loses few; gradients add up a few per cent.
void check_step(const NetworkCase& m, const NamedTensors& have, const NamedTensors& want,
                DType dtype) {
  const double tolerance = dtype == DType::f32 ? 1e-3 : 5e-2;
  for (const char* name : {"loss", "grad_norm"}) {
    const double a = number(have, name), b = number(want, name);
    require(std::isfinite(a) && std::fabs(a - b) <= tolerance * std::fabs(b), "bench: ", m.name,
            " ", dtype, ": ", name, " differs from the unfused f32 step (", a, " for ", b, ")");
  }
}

// On accelerators the data lie there, as they do in a loop that loads ahead.
BenchResult time_step(TrainingStep& s, const Context& context, Ceilings& ceilings, DType dtype) {
  constexpr int steps = 30;
  BenchResult r = result_of_plan(context, s.plan, s.inputs, steps, dtype, ceilings);
  r.op = "train_step";
  r.ranks = split_of(context, {}).ranks;
  return r;
}

// Where the last layers start at zero, the error is the noise's own square; soon it is less.
void check_learning(const NetworkCase& m, double first, TrainingStep& s) {
  constexpr int steps = 10;
  double last = first;
  for (int i = 1; i < steps; ++i) last = number(s.plan.run(s.inputs), "loss");
  const bool starts_well = m.checkpoint || std::fabs(first - 1) < 0.05;
  require(starts_well && last < first, "bench: ", m.name, " does not learn (loss ", first,
          ", after ", steps, " steps ", last, ")");
}

BenchResult bench_large(const Context& context, const NetworkCase& m, const ModelBench& what,
                        Ceilings& ceilings) {
  const DType dtype = DType::bf16;
  const auto start = std::chrono::steady_clock::now();
  const Network network = make_network(with_batch(m, what.batch), {.precond = "eps"});
  TrainingStep s =
      make_step(network, {.dtype = dtype, .ema = false, .split = split_of(context, what.split)},
                {.recompute = what.recompute}, context);
  const double loss = number(s.plan.run(s.inputs), "loss");
  const std::chrono::duration<double> first_step = std::chrono::steady_clock::now() - start;
  check_learning(m, loss, s);
  BenchResult r = time_step(s, context, ceilings, dtype);
  r.first_step_s = first_step.count();
  r.example = m.name;
  if (what.profile) r.profile = profile_plan(s.plan, s.inputs, profile_runs);
  return r;
}

std::string full_name(const NetworkCase& m) { return "train_step/" + m.name; }

}  // namespace

std::vector<std::string> model_bench_names(const Device& device) {
  std::vector<std::string> out;
  for (const char* kind : {"train_step/", "denoise/"}) {
    for (const NetworkCase& m : small_networks()) out.push_back(kind + m.name);
    if (device.on_host()) continue;
    for (const NetworkCase& m : large_networks()) out.push_back(kind + m.name);
  }
  if (!device.on_host())
    for (const NetworkCase& m : finetuned_networks()) out.push_back(full_name(m));
  for (const NetworkCase& m : sampled_networks()) out.push_back("denoise/" + m.name);
  for (const std::string& name : component_bench_names(device)) out.push_back(name);
  return out;
}

void bench_models(const Context& context, const ModelBench& what, Ceilings& ceilings,
                  const std::function<void(const BenchResult&)>& report) {
  const auto asked = [&](const NetworkCase& m) {
    return full_name(m).find(what.filter) != std::string::npos;
  };
  for (const NetworkCase& m : small_networks()) {
    if (!asked(m)) continue;
    const Network network = make_network(with_batch(m, what.batch), {});
    TrainingStep plain = make_step(network, {.dtype = DType::f32}, {.fuse = false}, context);
    const NamedTensors want = plain.plan.run(plain.inputs);
    for (const DType d : {DType::f32, DType::bf16}) {
      if (!context.device->fast_in(d)) continue;
      TrainingStep s = make_step(network, {.dtype = d, .split = split_of(context, what.split)},
                                 {.recompute = what.recompute}, context);
      check_step(m, s.plan.run(s.inputs), want, d);
      BenchResult r = time_step(s, context, ceilings, d);
      r.example = m.name;
      if (what.profile) r.profile = profile_plan(s.plan, s.inputs, profile_runs);
      report(r);
    }
  }
  if (context.device->on_host()) return;
  for (const auto& networks : {large_networks(), finetuned_networks()})
    for (const NetworkCase& m : networks)
      if (asked(m)) report(bench_large(context, m, what, ceilings));
}

}  // namespace ebb
