// SharedKernel: a generated kernel that computes several uses of one text in one launch, each with
// its own tensors, sizes and strides. Small work on several tensors is then no launch each.
#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "backend/cuda/device/launch.h"
#include "backend/cuda/ptx/compiler.h"
#include "backend/cuda/ptx/emit.h"
#include "base/error.h"
#include "codegen/parameters.h"

namespace ebb::cuda {

// Whether the texts differ in their parameters alone, which is all that a launch can vary, and
// these fit into one.
template <class Text>
bool are_one_text(std::span<const Text> texts) {
  constexpr int64_t most = 4096;  // bytes of parameters, on every chip and driver
  return std::ranges::all_of(texts,
                             [&](const Text& t) {
                               return t.code == texts[0].code && t.used == texts[0].used &&
                                      t.pointers == texts[0].pointers;
                             }) &&
         codegen::SharedLaunch::bytes(static_cast<int>(texts.size()), texts[0].parameters.size()) <=
             most;
}

// `Text`: as GeneratedKernel takes it; of writers who know how many uses share the launch.
template <class Text>
class SharedKernel {
 public:
  SharedKernel(const char* name, std::vector<Text> texts, CudaDevice& device)
      : name_(name), uses_(std::move(texts)) {
    require(are_one_text(std::span<const Text>(uses_)), name,
            ": uses of several texts, or too many");
    kernel_ = device.compiler().kernel(emit_ptx(uses_[0].code, device.capability()), name);
    for (Text& t : uses_) t.code = {};
  }

  // The tensors of the first use, of the second, ...
  void launch(std::span<void* const> in, std::span<void* const> out, CudaDevice& device) const {
    const size_t ins = in.size() / uses_.size(), outs = out.size() / uses_.size();
    require(ins * uses_.size() == in.size() && outs * uses_.size() == out.size(), name_, ": ",
            in.size(), " operands and ", out.size(), " results of ", uses_.size(), " uses");
    codegen::SharedLaunch all(static_cast<int>(uses_.size()), uses_[0].parameters.size());
    for (size_t u = 0; u < uses_.size(); ++u) {
      const Text& text = uses_[u];
      codegen::Parameters p = text.parameters;
      const auto pointers = text.pointers.begin();
      for (size_t k = 0; k < text.used.size(); ++k) p.set(pointers[k], in[u * ins + text.used[k]]);
      for (size_t k = 0; k < outs; ++k) p.set(pointers[text.used.size() + k], out[u * outs + k]);
      all.add(p, text.blocks);
    }
    void* arguments[] = {all.parameters().data()};
    launch_kernel(name_, kernel_.get(),
                  {.grid = static_cast<unsigned>(all.blocks()),
                   .block = static_cast<unsigned>(uses_[0].threads)},
                  arguments, device);
  }

 private:
  const char* name_;
  std::vector<Text> uses_;
  Generated kernel_;
};

}  // namespace ebb::cuda
