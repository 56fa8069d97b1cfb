#include "backend/cuda/images.h"

#include <optional>

#include "backend/cuda/expr_writer.h"
#include "backend/cuda/generated.h"
#include "backend/cuda/images_room.h"
#include "base/error.h"

namespace ebb::cuda {
namespace {

ImagesDevice facts_of(const CudaDevice& d) {
  return {d.capability(), d.multiprocessors(), d.shared_per_block(),
          [&d](int cluster, int64_t blocks) { return images_room(cluster, blocks, d); }};
}

ImagesForm prepared(const ImagesForm& form) {
  ImagesForm f = in_one_walk(form);
  f.expr = simplified(f.expr);
  return f;
}

struct ImagesKernel : GeneratedKernel<ImagesText> {
  ImagesKernel(const ImagesForm& form, const ImagesLayout& layout, CudaDevice& device)
      : GeneratedKernel("images", write_images(form, layout, device.capability()), device) {}

  void launch(const std::vector<void*>& pointers, CudaDevice& device) const {
    Parameters p = text.parameters;
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

struct ImagesPass::State {
  CudaDevice& device;
  ImagesForm form;
  std::optional<ImagesKernel> kernel, unaligned;  // unaligned: compiled when it is needed first
};

std::vector<ImagesLayout> ImagesPass::layouts(const ImagesForm& form, const CudaDevice& device) {
  return images_layouts(prepared(form), facts_of(device), false);
}

bool ImagesPass::fits(const ImagesForm& form, const CudaDevice& device) {
  return images_fit(prepared(form), facts_of(device));
}

ImagesPass::ImagesPass(const ImagesForm& form, const ImagesLayout& layout, CudaDevice& device)
    : state_(std::make_shared<State>(State{device, prepared(form), {}, {}})) {
  state_->kernel.emplace(state_->form, layout, device);
}

void ImagesPass::run(std::span<void* const> in, std::span<void* const> out) const {
  State& s = *state_;
  const auto pointers = s.kernel->pointers(in, out);
  if (s.kernel->takes(pointers)) return s.kernel->launch(pointers, s.device);
  if (!s.unaligned) {
    const auto layouts = images_layouts(s.form, facts_of(s.device), true);
    require(!layouts.empty(), "images: tensors that are not aligned to 16 bytes do not fit (",
            s.form.pixels, " pixels of ", s.form.channels, " channels)");
    s.unaligned.emplace(s.form, layouts[0], s.device);
  }
  s.unaligned->launch(s.unaligned->pointers(in, out), s.device);
}

}  // namespace ebb::cuda
