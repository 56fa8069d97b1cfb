// Benches of evaluations of networks.
#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "nn/hashed_weights.h"
#include "passes/precision/mixed_precision.h"
#include "pipeline/bench_cases.h"
#include "pipeline/model_bench.h"

namespace ebb {
namespace {

constexpr int64_t timesteps = 1000;

struct Evaluation {
  Plan plan;
  NamedTensors inputs;
};

// What bench/torch/gpu_denoise.py gives its networks.
NamedTensors inputs_of(const Graph& g, const CommonConfig& c, int64_t batch) {
  NamedTensors in;
  Tensor noise(DType::f32, {batch}), classes(DType::i64, {batch});
  for (int64_t i = 0; i < batch; ++i) {
    noise.span<float>()[static_cast<size_t>(i)] = static_cast<float>((37 * i + 11) % timesteps);
    classes.span<int64_t>()[static_cast<size_t>(i)] = c.classes > 0 ? i % c.classes : 0;
  }
  in["noise"] = noise;
  if (c.classes > 0) in[std::string(nn::class_id)] = classes;
  for (const Source& s : g.sources())  // the image and other conditions
    if (s.kind == Source::Kind::input && !in.contains(s.name))
      in.emplace(s.name, nn::hashed_input("input." + s.name, g.type(s.value).shape));
  return in;
}

Evaluation make_evaluation(const NetworkCase& m, DType dtype, const Context& context,
                           CompileOptions options = {}) {
  const NamedModel named = model_of(m);
  const CommonConfig& c = named.config.common();
  Graph g;
  const nn::NetworkInputs in = network_inputs(g, *named.model, named.config, m.batch, m.size);
  g.output("F", network_of(*named.model, named.config)(g, in));
  options.weights = hashed_weights(named);
  NamedTensors inputs = inputs_of(g, c, m.batch);
  return {Plan(mixed_precision(g, dtype, Parameters::rounded), context, options),
          std::move(inputs)};
}

// Rounding to bf16 in every layer adds up to per cents of the output.
void check_output(const NetworkCase& m, DType dtype, const Tensor& have, const Tensor& want) {
  const double tolerance = dtype == DType::f32 ? 1e-3 : 5e-2;
  std::vector<float> error(have.span<float>().begin(), have.span<float>().end());
  for (size_t i = 0; i < error.size(); ++i) error[i] -= want.span<float>()[i];
  const double relative = l2_norm(error) / l2_norm(want.span<float>());
  require(relative <= tolerance, "bench: denoise/", m.name, ' ', dtype,
          ": the output differs from the unfused f32 plan by ", relative, " (at most ", tolerance,
          ")");
}

}  // namespace

void bench_denoise(const Context& context, const ModelBench& what, Ceilings& ceilings,
                   const std::function<void(const BenchResult&)>& report) {
  const std::vector<std::string> names = model_bench_names(*context.device);
  const bool exact = std::ranges::count(names, what.filter) > 0;  // may begin another name
  const auto asked = [&](const NetworkCase& m) {
    const std::string name = "denoise/" + m.name;
    return exact ? name == what.filter : name.find(what.filter) != std::string::npos;
  };
  for (const NetworkCase& m : small_networks()) {
    if (!asked(m)) continue;
    Evaluation plain = make_evaluation(m, DType::f32, context, {.fuse = false});
    const Tensor want = plain.plan.run(plain.inputs).at("F");
    for (const DType d : evaluation_dtypes(what, *context.device, {DType::f32, DType::bf16})) {
      Evaluation e = make_evaluation(m, d, context);
      const Tensor have = e.plan.run(e.inputs).at("F").to(DType::f32);
      check_output(m, d, have, want);
      BenchResult r =
          timed_evaluation(context, {"denoise", m.name, d}, e.plan, e.inputs, have, ceilings);
      if (what.profile) r.profile = profile_plan(e.plan, e.inputs, profile_runs);
      report(r);
    }
  }
  const bool host = context.device->on_host();
  const std::vector<DType> usual =
      host ? std::vector{DType::f32, DType::bf16} : std::vector{DType::bf16};
  std::vector<NetworkCase> large = host ? std::vector<NetworkCase>() : large_networks();
  if (!host || exact)  // a processor takes minutes for them
    for (NetworkCase& m : sampled_networks()) large.push_back(std::move(m));
  for (const NetworkCase& m : large) {
    if (!asked(m)) continue;
    for (const DType dtype : evaluation_dtypes(what, *context.device, usual)) {
      const auto start = std::chrono::steady_clock::now();
      Evaluation e = make_evaluation(m, dtype, context);
      const Tensor output = e.plan.run(e.inputs).at("F");
      const std::chrono::duration<double> first = std::chrono::steady_clock::now() - start;
      BenchResult r =
          timed_evaluation(context, {"denoise", m.name, dtype}, e.plan, e.inputs, output, ceilings);
      r.first_step_s = first.count();
      if (what.profile) r.profile = profile_plan(e.plan, e.inputs, profile_runs);
      report(r);
    }
  }
}

}  // namespace ebb
