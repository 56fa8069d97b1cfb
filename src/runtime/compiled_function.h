// CompiledFunction: a graph compiled for a device and called with the caller's memory, as a library
// of kernels calls its ops. A call takes no memory and waits for nothing; the first one may, where
// a GPU loads generated code. Small values that depend on no input are computed once, when it is
// made, and kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/context.h"

namespace ebb {

class CompiledFunction {
 public:
  // Of a graph of inputs and outputs alone. Outputs that are one value, or an input, are copies.
  // Of one device no two may be made at once. Throws Error.
  CompiledFunction(const Graph& g, const Context& context);

  // In the order of the graph.
  const std::vector<Type>& inputs() const { return inputs_; }
  const std::vector<Type>& outputs() const { return outputs_; }
  int64_t workspace_bytes() const { return workspace_bytes_; }

  // Addresses on the device: of the inputs and outputs, at multiples of Signature::alignment, and
  // of the workspace, at a multiple of 64; null if it needs none. Inputs and outputs do not
  // overlap, but where the function is one elementwise op an output may be an input.
  struct Memory {
    std::span<void*const> in, out;
    void* workspace = nullptr;
  };
  // Enqueues the work. Threads may call at once with memory of their own, on a GPU each with an
  // OnStream (backend/cuda/device/device.h): one for work that waits for nothing of others in
  // between. Throws Error.
  void run(const Memory& memory) const;

 private:
  // Where an operand of a step lies, in memory of the caller's.
  struct Place {
    enum class Of : uint8_t { input, output, constant, workspace } of = Of::workspace;
    size_t index = 0;    // of the input, output or constant
    int64_t offset = 0;  // bytes into it
  };
  struct Step {
    Signature sig;
    Program program;
    std::vector<Place> in, out;
    int64_t workspace = 0;  // offset
  };
  void* address(const Place& place, const Memory& memory) const;
  void compute(const Graph& constants, const Context& context);

  std::shared_ptr<Device> device_;
  std::vector<Type> inputs_, outputs_;
  int64_t workspace_bytes_ = 0;
  std::vector<Step> steps_;
  std::vector<std::shared_ptr<Buffer>> constants_;
};

}  // namespace ebb
