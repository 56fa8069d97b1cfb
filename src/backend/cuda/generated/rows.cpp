#include "backend/cuda/generated/rows.h"

#include <algorithm>
#include <optional>

#include "backend/cuda/generated/kernel.h"
#include "backend/cuda/generated/row_text.h"
#include "codegen/expr_writer.h"

namespace ebb::cuda {
namespace {

struct RowKernel : GeneratedKernel<RowText> {
  RowKernel(const RowForm& form, CudaDevice& device)
      : GeneratedKernel("rows",
                        write_rows(form, row_layout(form, device.sm_count()), device.capability()),
                        device) {}

  void launch(const std::vector<void*>& pointers, CudaDevice& device) const {
    GeneratedKernel::launch(pointers, static_cast<unsigned>(text.blocks), device);
  }
};

}  // namespace

struct RowPass::State {
  CudaDevice& device;
  std::optional<RowKernel> kernel;
};

bool RowPass::supports(const Shape& shape, int64_t row_dims, bool partials) {
  if (shape.rank() < row_dims) return false;
  int64_t length = 1;
  for (int64_t d = 1; d <= row_dims; ++d) length *= shape[-d];
  return length > 1 && length <= (partials ? longest_row_with_partials : longest_row) &&
         shape.numel() < int64_t{1} << 31;
}

RowPass::RowPass(const Expr& expr, const Shape& shape, std::vector<Type> in, const Options& options,
                 CudaDevice& device)
    : state_(std::make_shared<State>(State{device})) {
  if (shape.numel() == 0) return;
  RowForm form{.expr = codegen::simplified(expr),
               .in = {},
               .out = options.out,
               .maximum = options.maximum,
               .extents = options.extents,
               .partial_rows = options.partial_rows,
               .space = {},
               .slices = options.slices,
               .swaps = options.swaps,
               .segments = options.segments,
               .unaligned = options.unaligned};
  std::vector<Pitch> pitches = options.slices.pitch;
  for (size_t i = 0; i < in.size(); ++i) {
    form.in.push_back(in[i].dtype);
    if (expr.uses(static_cast<int64_t>(i))) continue;
    in[i] = {};
    if (i < pitches.size()) pitches[i] = {};
  }
  in.push_back({DType::f32, shape});
  if (form.segments.any()) {  // keeps their dim
    Shape along = shape;
    for (int64_t d = -1; - d <= shape.rank(); --d)
      if (d != form.segments.dim) along[d] = 1;
    in.push_back({DType::f32, along});
  }
  std::vector<bool> reduced(static_cast<size_t>(shape.rank()));
  std::fill(reduced.end() - options.row_dims, reduced.end(), true);
  form.space = make_iteration_space(shape, in, reduced, pitches);
  if (form.segments.any()) {
    const std::vector<int64_t> along = form.space.strides.back();
    form.space.strides.pop_back();
    form.segments.dim = std::ranges::find(along, 1) - along.begin();
  }
  state_->kernel.emplace(form, device);
}

void RowPass::run(std::span<void* const> in, std::span<void* const> out) const {
  const State& s = *state_;
  if (s.kernel) s.kernel->launch(s.kernel->pointers(in, out), s.device);
}

}  // namespace ebb::cuda
