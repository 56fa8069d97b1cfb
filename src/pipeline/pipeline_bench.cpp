#include "pipeline/pipeline_bench.h"

#include <chrono>

#include "pipeline/bench_cases.h"
#include "pipeline/pipeline.h"

namespace ebb {
namespace {

constexpr const char* models[] = {"tiny", "adm64"};

std::string full_name(const std::string& model) { return "second_plan/" + model; }

// Of zeros: nothing here depends on their values.
LoadedModel model_of_zeros(const std::string& name) {
  const NamedModel named = find_model(name);
  LoadedModel m{named.model, named.config, usual_diffusion(*named.model, named.config), {}};
  WeightStore::Weights weights;
  for (const nn::Weight& w : weights_of(*m.model, m.config))
    weights[w.name] = stored_tensor(Tensor(DType::f32, w.shape));
  m.weights = std::make_shared<WeightStore>(std::move(weights));
  return m;
}

BenchResult bench_second_plan(const Context& context, const std::string& name) {
  using Clock = std::chrono::steady_clock;
  Pipeline pipeline(model_of_zeros(name), context);
  const int64_t label = pipeline.model().config.common().classes > 0 ? 0 : -1;
  const auto request = [&](int64_t images) {
    return pipeline.resolve({.classes = std::vector<int64_t>(static_cast<size_t>(images), label)},
                            {.steps = 1, .sampler = "euler"});
  };
  const auto seconds_of = [&](const auto& work) {
    const auto start = Clock::now();
    work();
    context.device->synchronize();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const bool runs = !context.device->on_host();
  pipeline.prepare(request(4));
  if (runs) pipeline.generate(request(4));
  std::vector<double> times;
  for (const int64_t images : {3, 5, 6})
    times.push_back(seconds_of([&, r = request(images)] { pipeline.prepare(r); }));
  const char* const dtype = context.device->fast_in(DType::bf16) ? "bf16" : "f32";
  BenchResult out =
      result_of_runs(context, {"second_plan", name, dtype, "compile"}, std::move(times));
  if (runs) out.first_step_s = seconds_of([&, r = request(8)] { pipeline.generate(r); });
  return out;
}

}  // namespace

std::vector<std::string> pipeline_bench_names() {
  std::vector<std::string> out;
  for (const char* name : models) out.push_back(full_name(name));
  return out;
}

void bench_pipelines(const Context& context, const std::string& filter,
                     const std::function<void(const BenchResult&)>& report) {
  for (const char* name : models)
    if (full_name(name).find(filter) != std::string::npos) report(bench_second_plan(context, name));
}

}  // namespace ebb
