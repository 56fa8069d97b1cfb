// Generator: a stream of standard normal numbers determined by a seed, as in other programs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ebb {

class Generator {
 public:
  virtual ~Generator() = default;
  // One call of the program's `randn`: its result depends on earlier calls and, for some
  // generators, on its size.
  virtual void normal(std::span<double> out) = 0;
};

// The dtype of the draws. half and bf16 of PyTorch's CPU generator have their own algorithms.
enum class NoiseType { f32, f64, f16, bf16, f16_from_f32, bf16_from_f32 };

// Rounds to the type.
double round_to(NoiseType type, double x);

// The GPU that torch_cuda imitates: results differ between GPUs if a tensor has more elements than
// the GPU has threads.
struct GpuOptions {
  int64_t sm_count = 132, threads = 2048;
  void fields(auto&& f) {
    f("sm_count", sm_count, "of the GPU whose numbers are drawn (H100, H200: 132)");
    f("threads", threads, "that a SM of that GPU holds (H100, H200: 2048)");
  }
};

struct GeneratorKind {
  std::string name = "torch_cpu";  // torch_cpu, torch_cuda, nv
  std::string type = "f32";        // f32, f64, f16, bf16; of torch_cpu f16_from_f32, bf16_from_f32
  GpuOptions gpu = {};

  void check() const;  // throws Error for unknown values
};

std::unique_ptr<Generator> make_generator(const GeneratorKind& kind, uint64_t seed);

}  // namespace ebb
