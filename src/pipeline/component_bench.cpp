// Benches of text encoders and autoencoders.
#include <chrono>

#include "base/error.h"
#include "nn/hashed_weights.h"
#include "pipeline/bench_cases.h"
#include "pipeline/component.h"
#include "pipeline/model_bench.h"

namespace ebb {
namespace {

struct ComponentCase {
  std::string op, name, model, entry, output;
  int64_t height = 0, width = 0;  // of the pixels; 0: of a text encoder
  bool on_host = false;           // whether a processor takes seconds at most
  std::string full_name() const { return op + "/" + name; }
};

std::vector<ComponentCase> cases(const Device& device) {
  std::vector<ComponentCase> out;
  for (const ComponentCase& c : {
           ComponentCase{.op = "encode_text",
          .name = "clip_l",
          .model = "clip_l",
          .entry = "encode",
          .output = "states.1.normed",
          .on_host = true},
           {"decode", "taesd_512", "taesd", "decode", "pixels", 512, 512, true},
           {"decode", "vae_512", "autoencoder_kl", "decode", "pixels", 512, 512},
           {"decode", "vae_768x512", "autoencoder_kl", "decode", "pixels", 512, 768},
           {"decode", "vae_1024", "autoencoder_kl", "decode", "pixels", 1024, 1024},
           {"encode", "vae_1024", "autoencoder_kl", "encode", "mean", 1024, 1024},
       })
    if (c.on_host || !device.on_host()) out.push_back(c);
  return out;
}

constexpr int64_t tokens = 77;

// What bench/torch/components.py gives its networks.
NamedTensors inputs_of(const ComponentCase& c) {
  if (c.height == 0) {
    Tensor ids(DType::i64, {1, tokens}), end(DType::i64, {1});
    for (int64_t i = 0; i < tokens; ++i)
      ids.span<int64_t>()[static_cast<size_t>(i)] = (i * 613 + 320) % 49408;
    end.span<int64_t>()[0] = tokens - 1;
    return {{"tokens", ids}, {"end", end}};
  }
  if (c.entry == "encode")
    return {{"pixels", nn::hashed_input("input.pixels", {1, c.height, c.width, 3})}};
  return {{"latents", nn::hashed_input("input.latents", {1, c.height / 8, c.width / 8, 4})}};
}

void bench(const Context& context, const ComponentCase& c, DType dtype, const ModelBench& what,
           Ceilings& ceilings, const std::function<void(const BenchResult&)>& report) {
  const auto start = std::chrono::steady_clock::now();
  const NamedModel m = find_component(c.model);
  const NamedTensors inputs = inputs_of(c);
  EntryCall call{.entry = c.entry, .inputs = {}, .outputs = {c.output}};
  for (const auto& [name, t] : inputs) call.inputs[name] = t.shape();
  Plan plan = entry_plan({m.model, m.config, ""}, call, dtype, hashed_weights(m), context);
  const Tensor output = plan.run(inputs).at(c.output);
  const std::chrono::duration<double> first = std::chrono::steady_clock::now() - start;
  BenchResult r = timed_evaluation(context, {c.op, c.name, dtype}, plan, inputs, output, ceilings);
  r.first_step_s = first.count();
  if (what.profile) r.profile = profile_plan(plan, inputs, profile_runs);
  report(r);
}

}  // namespace

std::vector<std::string> component_bench_names(const Device& device) {
  std::vector<std::string> out;
  for (const ComponentCase& c : cases(device)) out.push_back(c.full_name());
  return out;
}

void bench_components(const Context& context, const ModelBench& what, Ceilings& ceilings,
                      const std::function<void(const BenchResult&)>& report) {
  for (const ComponentCase& c : cases(*context.device)) {
    if (c.full_name().find(what.filter) == std::string::npos) continue;
    const std::vector<DType> usual =
        context.device->on_host() ? std::vector{DType::f32, DType::bf16} : std::vector{DType::bf16};
    for (const DType d : evaluation_dtypes(what, *context.device, usual))
      bench(context, c, d, what, ceilings, report);
  }
}

}  // namespace ebb
