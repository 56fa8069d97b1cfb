#include "backend/cuda/generated/pixels.h"

#include "backend/cuda/generated/kernel.h"
#include "base/error.h"
#include "codegen/expr_writer.h"

namespace ebb::cuda {

using codegen::LoopKernel;
using codegen::PixelForm;
using codegen::PixelLayout;

namespace {

PixelForm prepared(const PixelForm& form) {
  PixelForm f = in_one_sweep(form);
  f.expr = codegen::simplified(f.expr);
  return f;
}

Addresses addresses_of(const PixelForm& f) {
  Addresses a;
  size_t tensor = 0;
  for (size_t i = 0; i < f.in.size(); ++i)
    for (size_t k = 0; k < f.segments.of(i, f.segments.segmented_in); ++k)
      a.in.push_back({tensor++, f.in[i].begin * size_of(f.in[i].dtype)});
  tensor = 0;
  const size_t separate = f.out.size() - static_cast<size_t>(f.concatenated);
  for (size_t k = 0; k < separate; ++k)
    for (size_t n = 0; n < f.segments.of(k, f.segments.segmented_out); ++n)
      a.out.push_back({tensor++, 0});
  for (int64_t k = 0; k < f.concatenated; ++k)
    a.out.push_back({tensor, k * f.channels * size_of(f.out[separate + static_cast<size_t>(k)])});
  return a;
}

GeneratedKernel kernel_of(const PixelForm& form, const PixelForm& own, const PixelLayout& layout,
                          CudaDevice& device) {
  constexpr const char* name = "pixels";
  LoopKernel kernel[] = {write_pixels(own, layout, target_of(device))};
  const Addresses addresses[] = {addresses_of(form)};
  return {name, compiled(name, kernel[0].kernel, device), prepared_launch(name, kernel, addresses)};
}

}  // namespace

struct PixelPass::State {
  CudaDevice& device;
  GeneratedKernel kernel;
};

std::vector<PixelLayout> PixelPass::layouts(const PixelForm& form, const CudaDevice& device) {
  return pixel_layouts(prepared(form), target_of(device));
}

bool PixelPass::fits(const PixelForm& form, const CudaDevice& device) {
  return pixel_fits(prepared(form), target_of(device));
}

PixelPass::PixelPass(const PixelForm& form, int64_t tile, int64_t cluster, int64_t threads,
                     CudaDevice& device) {
  const PixelForm own = prepared(form);
  const auto layout = pixel_layout(own, target_of(device), tile, cluster, threads);
  require(layout.has_value(), "pixels: no layout fits the device (", form.pixels, " pixels of ",
          form.channels, " channels)");
  state_ = std::make_shared<const State>(State{device, kernel_of(form, own, *layout, device)});
}

void PixelPass::run(std::span<void* const> in, std::span<void* const> out) const {
  state_->kernel.run(in, out, state_->device);
}

}  // namespace ebb::cuda
