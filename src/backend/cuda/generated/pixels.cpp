#include "backend/cuda/generated/pixels.h"

#include "backend/cuda/generated/kernel.h"
#include "base/error.h"
#include "codegen/expr_writer.h"

namespace ebb::cuda {
namespace {

PixelForm prepared(const PixelForm& form) {
  PixelForm f = in_one_sweep(form);
  f.expr = codegen::simplified(f.expr);
  return f;
}

struct PixelKernel : GeneratedKernel<PixelText> {
  PixelKernel(const PixelForm& form, const PixelLayout& layout, CudaDevice& device)
      : GeneratedKernel("pixels", write_pixels(form, layout, device.capability()), device) {}

  void launch(const std::vector<void*>& pointers, CudaDevice& device) const {
    codegen::Parameters p = text.parameters;
    for (size_t i = 0; i < pointers.size(); ++i) p.set(text.pointers[i], pointers[i]);
    void* arguments[] = {p.data()};
    launch_kernel(name, kernel.get(),
                  {.grid = static_cast<unsigned>(text.blocks),
                   .block = static_cast<unsigned>(text.threads),
                   .shared = text.shared,
                   .cluster = static_cast<unsigned>(text.cluster)},
                  arguments, device);
  }
};

}  // namespace

struct PixelPass::State {
  CudaDevice& device;
  PixelKernel kernel;
};

std::vector<PixelLayout> PixelPass::layouts(const PixelForm& form, const CudaDevice& device) {
  return pixel_layouts(prepared(form), device.chip());
}

bool PixelPass::fits(const PixelForm& form, const CudaDevice& device) {
  return pixel_fits(prepared(form), device.chip());
}

PixelPass::PixelPass(const PixelForm& form, int64_t tile, int64_t cluster, int64_t threads,
                     CudaDevice& device) {
  const PixelForm own = prepared(form);
  const auto layout = pixel_layout(own, device.chip(), tile, cluster, threads);
  require(layout.has_value(), "pixels: no layout fits the device (", form.pixels, " pixels of ",
          form.channels, " channels)");
  state_ = std::make_shared<State>(State{device, {own, *layout, device}});
}

void PixelPass::run(std::span<void* const> in, std::span<void* const> out) const {
  const PixelKernel& kernel = state_->kernel;
  kernel.launch(kernel.pointers(in, out), state_->device);
}

}  // namespace ebb::cuda
