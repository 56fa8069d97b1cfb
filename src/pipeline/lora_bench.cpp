#include "pipeline/lora_bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>

#include "adapters/adapters.h"
#include "base/error.h"
#include "base/random.h"
#include "io/safetensors.h"
#include "models/model.h"
#include "nn/storage.h"
#include "passes/precision/mixed_precision.h"
#include "pipeline/bench_cases.h"
#include "runtime/plan.h"
#include "runtime/weight_store.h"

namespace ebb {
namespace {

constexpr const char* networks[] = {"sd15", "sdxl"};
constexpr int64_t rank = 32;

std::string full_name(const std::string& network) { return "lora/" + network; }

// Bytes of one block of random numbers, over and over: as a file in the system's cache.
StoredWeight random_weight(const nn::Weight& w, const Tensor& block) {
  StoredWeight out{.type = {DType::bf16, nn::file_shape(w)}};
  out.read = [block](int64_t at, std::span<uint8_t> to) {
    const auto* from = static_cast<const char*>(block.raw());
    for (size_t done = 0; done < to.size();) {
      const int64_t begin = (at + static_cast<int64_t>(done)) % block.bytes();
      const size_t n = std::min(to.size() - done, static_cast<size_t>(block.bytes() - begin));
      std::memcpy(to.data() + done, from + begin, n);
      done += n;
    }
  };
  out.decode = [w](Value v) { return nn::decode(w, v); };
  return out;
}

Tensor random_block(int64_t count, double scale) {
  Tensor t(DType::f32, {count});
  fill_normal({.seed = 1}, 0, t.span<float>());
  for (float& x : t.span<float>()) x *= static_cast<float>(scale);
  return t.to(DType::bf16);
}

std::shared_ptr<WeightStore> random_store(const NamedModel& m) {
  const Tensor block = random_block(int64_t{1} << 20, 0.03);
  WeightStore::Weights out;
  for (const nn::Weight& w : weights_of(*m.model, m.config))
    out.emplace(w.name, random_weight(w, block));
  return std::make_shared<WeightStore>(std::move(out));
}

bool is_adapted(const std::string& weight) {
  return weight.find("transformer_blocks") != std::string::npos && weight.ends_with(".weight") &&
         (weight.find(".attn") != std::string::npos || weight.find(".ff.") != std::string::npos);
}

void write_lora(const std::string& path, const NamedModel& m) {
  std::vector<io::NamedTensor> tensors;
  const auto add = [&](const std::string& name, const Shape& shape) {
    tensors.push_back({name, random_block(shape.numel(), 0.02).reshape(shape)});
  };
  for (const nn::Weight& w : weights_of(*m.model, m.config)) {
    if (!is_adapted(w.name)) continue;
    const std::string stem = "diffusion_model." + w.name.substr(0, w.name.rfind('.'));
    add(stem + ".lora_down.weight", {rank, w.shape[1]});
    add(stem + ".lora_up.weight", {w.shape[0], rank});
  }
  io::write_safetensors(path, tensors);
}

// Gone at the end.
struct TemporaryFile {
  TemporaryFile() = default;
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  std::filesystem::path path = std::filesystem::temp_directory_path() /
                               str("ebb-lora-", std::random_device()(), ".safetensors");
};

BenchResult bench_lora(const Context& context, const std::string& name) {
  using Clock = std::chrono::steady_clock;
  const NamedModel m = find_model(name);
  const TemporaryFile temporary;
  write_lora(temporary.path.string(), m);
  const auto store = random_store(m);
  Graph g;
  g.output("F", network_of(*m.model, m.config)(g, network_inputs(g, *m.model, m.config, 2)));
  const CompileOptions options{.weights = store};
  Lowering lowering{*context.device, options};
  lowered(mixed_precision(g, DType::bf16, Parameters::rounded), lowering, "prepare");
  store->get(lowering.prepared, context);
  const std::vector<adapters::Network> target = {
      {adapters::Network::Part::denoiser, 1, m.model, m.config, store}};
  const auto file = adapters::AdapterFile::open(temporary.path.string());
  const auto seconds = [&](double strength) {
    context.device->synchronize();
    const auto start = Clock::now();
    adapters::apply({{file, strength, strength}}, target, true);
    store->get(lowering.prepared, context);
    context.device->synchronize();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const double first = seconds(1);
  std::vector<double> times;
  for (const double strength : {0.9, 0.8, 0.7, 0.6, 0.5}) times.push_back(seconds(strength));
  BenchResult out = result_of_runs(context, {"lora", name, "bf16", "merge"}, std::move(times));
  out.first_step_s = first;
  out.memory_gb = static_cast<double>(store->held_bytes(*context.device)) * 1e-9;
  return out;
}

}  // namespace

std::vector<std::string> lora_bench_names() {
  std::vector<std::string> out;
  for (const char* name : networks) out.push_back(full_name(name));
  return out;
}

void bench_loras(const Context& context, const std::string& filter,
                 const std::function<void(const BenchResult&)>& report) {
  for (const char* name : networks)
    if (full_name(name).find(filter) != std::string::npos) report(bench_lora(context, name));
}

}  // namespace ebb
