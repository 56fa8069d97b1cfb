// A generated kernel with its parameters: what the passes do with a text.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "backend/cuda/device/launch.h"
#include "backend/cuda/ptx/compiler.h"
#include "backend/cuda/ptx/emit.h"
#include "codegen/parameters.h"

namespace ebb::cuda {

// `Text` is what a writer gives (StridedText, ReduceText, RowText, PixelText): the text, its
// parameters, the inputs it uses, and where their addresses go.
template <class Text>
struct GeneratedKernel {
  const char* name;
  Text text;
  Generated kernel;

  GeneratedKernel(const char* kernel_name, Text written, CudaDevice& device)
      : name(kernel_name),
        text(std::move(written)),
        kernel(device.compiler().kernel(emit_ptx(std::exchange(text.code, {}), device.capability()),
                                        name)) {}

  std::vector<void*> pointers(std::span<void* const> in, std::span<void* const> out) const {
    std::vector<void*> all;
    all.reserve(text.used.size() + out.size());
    for (const size_t i : text.used) all.push_back(in[i]);
    all.insert(all.end(), out.begin(), out.end());
    return all;
  }
  void launch(const std::vector<void*>& pointers, unsigned blocks, CudaDevice& device) const {
    codegen::Parameters p = text.parameters;
    for (size_t i = 0; i < pointers.size(); ++i) p.set(text.pointers[i], pointers[i]);
    void* arguments[] = {p.data()};
    launch_kernel(name, kernel.get(),
                  {.grid = blocks, .block = static_cast<unsigned>(text.threads)}, arguments,
                  device);
  }
};

}  // namespace ebb::cuda
