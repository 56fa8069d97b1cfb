// GeneratedKernel: a kernel that codegen wrote, compiled for a device, with one launch of it.
#pragma once

#include <span>
#include <vector>

#include "backend/cuda/device/launch.h"
#include "backend/cuda/ptx/compiler.h"
#include "codegen/loops/loop_kernel.h"
#include "codegen/loops/slices.h"
#include "codegen/target.h"

namespace ebb::cuda {

// Where an operand or a result begins: so many bytes into one of a run's tensors.
struct TensorAddress {
  size_t tensor = 0;
  int64_t bytes = 0;
};

// Those of a use's operands and results, every segment counted.
struct Addresses {
  std::vector<TensorAddress> in, out;
};

// Of uses whose tensors follow one another, use by use.
class AddressCounter {
 public:
  // The next use: so many tensors of each operand and of all results. `slices`: of the operands.
  Addresses next(const std::vector<size_t>& of_operands, const codegen::SlicesForm& slices,
                 const std::vector<DType>& types, size_t results);

 private:
  size_t in_ = 0, out_ = 0;
};

// A launch: the parameter struct but for its addresses, and where they go.
struct PreparedLaunch {
  struct Field {
    int64_t at = 0;  // bytes from the start of the struct
    TensorAddress address;
  };
  Launch shape = {};
  std::vector<char> parameters;
  std::vector<Field> in, out;

  // Writes the struct for a run's tensors.
  void fill(std::span<char> to, std::span<void* const> in_tensors,
            std::span<void* const> out_tensors) const;
};

// Of uses that share it (codegen::share_a_launch).
PreparedLaunch prepared_launch(const char* name, std::span<codegen::LoopKernel> uses,
                               std::span<const Addresses> addresses);

class GeneratedKernel {
 public:
  // Throws Error where there are more parameters than a launch can have.
  GeneratedKernel(const char* name, Generated kernel, PreparedLaunch launch);
  // Enqueues it. Allocates nothing; several threads may call it at once.
  void run(std::span<void* const> in, std::span<void* const> out, CudaDevice& device) const;

 private:
  const char* name_;
  Generated kernel_;
  PreparedLaunch launch_;
};

// The driver's code for a kernel of this name.
Generated compiled(const char* name, const codegen::Kernel& kernel, CudaDevice& device);

// A device as those who write kernels see it.
codegen::Target target_of(const CudaDevice& device);

}  // namespace ebb::cuda
