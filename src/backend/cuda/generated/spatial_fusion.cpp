#include "backend/cuda/generated/spatial_fusion.h"

#include <optional>

#include "backend/cuda/generated/kernel.h"
#include "base/error.h"
#include "codegen/expr_writer.h"

namespace ebb::cuda {
namespace {

SpatialForm prepared(const SpatialForm& form) {
  SpatialForm f = in_one_sweep(form);
  f.expr = codegen::simplified(f.expr);
  return f;
}

struct SpatialKernel : GeneratedKernel<SpatialText> {
  SpatialKernel(const SpatialForm& form, const SpatialLayout& layout, CudaDevice& device)
      : GeneratedKernel("spatial_fusion", write_spatial(form, layout, device.capability()),
                        device) {}

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

struct SpatialPass::State {
  CudaDevice& device;
  SpatialForm form;
  std::optional<SpatialKernel> kernel, unaligned;  // unaligned: compiled when it is needed first
};

std::vector<SpatialLayout> SpatialPass::layouts(const SpatialForm& form, const CudaDevice& device) {
  return spatial_layouts(prepared(form), device.chip(), false);
}

bool SpatialPass::fits(const SpatialForm& form, const CudaDevice& device) {
  return spatial_fits(prepared(form), device.chip());
}

SpatialPass::SpatialPass(const SpatialForm& form, int64_t tile, int64_t cluster, int64_t threads,
                         CudaDevice& device)
    : state_(std::make_shared<State>(State{device, prepared(form), {}, {}})) {
  const auto layout = spatial_layout(state_->form, device.chip(), tile, cluster, threads);
  require(layout.has_value(), "spatial_fusion: no layout fits the device (", form.pixels,
          " pixels of ", form.channels, " channels)");
  state_->kernel.emplace(state_->form, *layout, device);
}

void SpatialPass::run(std::span<void* const> in, std::span<void* const> out) const {
  State& s = *state_;
  const auto pointers = s.kernel->pointers(in, out);
  if (s.kernel->takes(pointers)) return s.kernel->launch(pointers, s.device);
  if (!s.unaligned) {
    const auto layouts = spatial_layouts(s.form, s.device.chip(), true);
    require(!layouts.empty(),
            "spatial_fusion: tensors that are not aligned to 16 bytes do not fit (", s.form.pixels,
            " pixels of ", s.form.channels, " channels)");
    s.unaligned.emplace(s.form, layouts[0], s.device);
  }
  s.unaligned->launch(s.unaligned->pointers(in, out), s.device);
}

}  // namespace ebb::cuda
