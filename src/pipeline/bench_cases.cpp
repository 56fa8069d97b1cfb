#include "pipeline/bench_cases.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "nn/hashed_weights.h"
#include "nn/storage.h"
#include "pipeline/model_bench.h"

namespace ebb {
namespace {

Timing time_on_host(Plan& plan, const NamedTensors& inputs) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  double spent = 0;
  const bool alone = plan.device().communicator() == nullptr;  // else all ranks run it as often
  while (times.size() < 5 || (alone && spent < 5 && times.size() < 30)) {
    const auto start = Clock::now();
    plan.run(inputs);
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    spent += times.back();
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  return {median, (times[times.size() * 9 / 10] - times[times.size() / 10]) / median, 0};
}

}  // namespace

std::vector<DType> evaluation_dtypes(const ModelBench& what, const Device& device,
                                     const std::vector<DType>& usual) {
  if (what.dtype) return {*what.dtype};
  std::vector<DType> out;
  for (const DType d : usual)
    if (device.fast_in(d)) out.push_back(d);
  return out;
}

std::vector<NetworkCase> small_networks() {
  return {{"tiny", "tiny", "", 64},
          {"songunet", "ddpmpp_cifar10", "{model_channels=64 dropout=0}", 16},
          {"adm", "unet64", "{dropout=0}", 8}};
}

// Training takes the mean square error of the noise, without the variational bound.
std::vector<NetworkCase> large_networks() {
  return {{"unet64", "unet64", "{dropout=0}", 32},
          {"adm64", "adm64", "{dropout=0 learn_sigma=false}", 32},
          {"dit_xl2", "dit_xl2", "{learn_sigma=false}", 64}};
}

std::vector<NetworkCase> finetuned_networks() {
  return {{.name = "sd15", .model = "sd15", .settings = "", .batch = 16, .checkpoint = true},
          {.name = "sdxl_lora",
           .model = "sdxl",
           .settings = "",
           .batch = 4,
           .checkpoint = true,
           .rank = 16},
          {.name = "sdxl_lora_q8",
           .model = "sdxl",
           .settings = "",
           .batch = 4,
           .checkpoint = true,
           .rank = 16,
           .frozen_in_8_bits = true},
          // the U-Net of the model in the box (tools/box/networks.json)
          {.name = "box",
           .model = "sd15",
           .settings = "{model_channels=128 channel_mult=[1,2] num_res_blocks=1 "
                       "input_depths=[1,0] middle_depth=1 output_depths=[0,0,1,1] num_heads=0 "
                       "num_head_channels=64 context=128 image_size=16}",
           .batch = 256,
           .checkpoint = true}};
}

// Both halves of guidance for one image; latents are an eighth of its sides.
std::vector<NetworkCase> sampled_networks() {
  return {{"sd15", "sd15", "", 2},
          {"sd15_768x512", "sd15", "", 2, {.height = 64, .width = 96}},
          {"sdxl", "sdxl", "", 2},
          {"sdxl_832x1216", "sdxl", "", 2, {.height = 152, .width = 104}}};
}

NamedModel model_of(const NetworkCase& c) {
  NamedModel named = find_component(c.model);
  parse_fields(named.config.fields(), c.settings);
  return named;
}

std::shared_ptr<WeightStore> hashed_weights(const NamedModel& m) {
  WeightStore::Weights out;
  for (const nn::Weight& w : weights_of(*m.model, m.config)) {
    StoredWeight stored = stored_tensor(w.spec.init == "sin_cos_2d"
                                            ? nn::to_file(w, nn::hashed_weight(w))
                                            : nn::hashed_file_tensor(w.name, nn::file_shape(w)));
    stored.decode = [w](Value v) { return nn::decode(w, v); };
    out.emplace(w.name, std::move(stored));
  }
  return std::make_shared<WeightStore>(std::move(out));
}

double l2_norm(std::span<const float> v) {
  double sum = 0;
  for (const float x : v) sum += double{x} * double{x};
  return std::sqrt(sum);
}

BenchResult timed_evaluation(const Context& context, const Timed& what, Plan& plan,
                             const NamedTensors& inputs, const Tensor& output, Ceilings& ceilings) {
  constexpr int runs = 30, projections = 3;
  const auto values = output.to(DType::f32);
  const double l2 = l2_norm(values.span<float>());
  require(std::isfinite(l2) && l2 > 0, "bench: ", what.op, '/', what.example,
          ": the output is not finite");
  std::vector<double> check{l2};
  for (int k = 0; k < projections; ++k)
    check.push_back(nn::projection("output", k, values.span<float>()));
  BenchResult r = result_of_plan(context, plan, inputs, runs, what.dtype, ceilings);
  r.op = what.op;
  r.example = what.example;
  r.check = std::move(check);
  return r;
}

Timing time_plan(Device& device, Plan& plan, const NamedTensors& inputs, int runs) {
  if (device.on_host()) return time_on_host(plan, inputs);
  return time_on_device(device, 1, runs, [&](int) { plan.enqueue(); });
}

BenchResult result_of_plan(const Context& context, Plan& plan, const NamedTensors& inputs, int runs,
                           DType dtype, Ceilings& ceilings) {
  const Timing t = time_plan(*context.device, plan, inputs, runs);
  const Cost cost = plan.cost();
  return {.dtype = str(dtype),
          .device = std::string(context.device->backend()),
          .kernel = "plan",
          .us = t.median * 1e6,
          .spread = t.spread,
          .gb_per_s = cost.bytes / t.median * 1e-9,
          .tflop_per_s = cost.flops / t.median * 1e-12,
          .peak_percent = ceilings.percent({.flops = cost.flops}, t.median, dtype),
          .memory_gb = static_cast<double>(plan.arena_bytes() + plan.source_bytes()) * 1e-9,
          .host_us = t.host * 1e6};
}

BenchResult result_of_runs(const Context& context, const RunsOf& what,
                           std::vector<double> seconds) {
  std::ranges::sort(seconds);
  const double median = seconds[seconds.size() / 2];
  return {.op = what.op,
          .example = what.example,
          .dtype = what.dtype,
          .device = std::string(context.device->backend()),
          .kernel = what.kernel,
          .us = median * 1e6,
          .spread = (seconds.back() - seconds.front()) / median};
}

}  // namespace ebb
