#include "pipeline/load_bench.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "io/safetensors.h"
#include "train/model_weights.h"

namespace ebb {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t private_bytes_now() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  return 0;
}

// Asks for the process's private memory until it ends.
class PeakMemory {
 public:
  PeakMemory()
      : thread_([this] {
          while (!stop_) {
            peak_ = std::max<int64_t>(peak_, private_bytes_now());
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
          }
        }) {}
  ~PeakMemory() { end(); }
  PeakMemory(const PeakMemory&) = delete;
  PeakMemory& operator=(const PeakMemory&) = delete;
  int64_t end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return peak_;
  }

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> peak_ = 0;
  std::thread thread_;
};

// A graph that reads every tensor as it is stored.
PreparedGraph all_of(const WeightStore& store) {
  PreparedGraph out;
  for (const auto& [name, w] : store.weights()) {
    const Value v = out.prepare.source(Source::Kind::param, name, w.type);
    out.values.push_back({name, name, v.id});
  }
  return out;
}

void check_same(const Tensor& on_device, const Tensor& in_file, const Context& context,
                const std::string& name) {
  Tensor host(on_device.type());
  context.device->copy(on_device, host);
  require(host.type() == in_file.type() &&
              std::memcmp(host.raw(), in_file.raw(), static_cast<size_t>(host.bytes())) == 0,
          "bench: '", name, "' did not arrive as the file has it");
}

}  // namespace

LoadResult bench_load(const Context& context, const std::string& path) {
  const auto file = io::TensorFile::open(path);
  nn::Weights weights;
  for (const io::TensorEntry& e : file.entries()) weights.push_back({e.name, e.shape, {}});
  require(!weights.empty(), "bench: the file has no tensors  ", path);
  train::open_model_weights(path, weights);
  LoadResult r;
  PeakMemory memory;
  const auto start = Clock::now();
  const auto store = train::open_model_weights(path, weights);
  r.check_s = seconds_since(start);
  const PreparedGraph all = all_of(*store);
  const std::vector<Tensor> tensors = store->get(all, context);
  context.device->synchronize();
  r.fill_s = seconds_since(start) - r.check_s;
  r.private_bytes = memory.end();
  for (const Tensor& t : tensors) r.bytes += t.bytes();
  for (const size_t i : {size_t{0}, tensors.size() - 1}) {
    const std::string& name = all.values[i].key;
    if (io::TensorFile::as_stored(file.find(name)))
      check_same(tensors[i], file.load(name), context, name);
  }
  return r;
}

void write_random_weights(const std::string& path, int64_t bytes) {
  constexpr int64_t most = int64_t{1} << 24;  // bytes of a tensor
  const int64_t count = (bytes + most - 1) / most;
  Tensor numbers(DType::f32, {bytes / count / 2});
  fill_normal({.seed = 1}, 0, numbers.span<float>());
  const Tensor one = numbers.to(DType::bf16);
  std::vector<io::NamedTensor> tensors;  // all in the same memory
  for (int64_t i = 0; i < count; ++i) tensors.push_back({str("w.", i), one});
  io::write_safetensors(path, tensors);
}

}  // namespace ebb
