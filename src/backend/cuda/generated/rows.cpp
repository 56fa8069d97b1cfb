#include "backend/cuda/generated/rows.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "backend/cuda/generated/kernel.h"
#include "codegen/expr_writer.h"

namespace ebb::cuda {

using codegen::LoopKernel;
using codegen::RowForm;
using codegen::Target;

namespace {

RowForm form_of(RowUse use) {
  const Shape& shape = use.shape;
  RowForm form{.expr = codegen::simplified(use.expr),
               .in = {},
               .out = use.out,
               .maximum = use.maximum,
               .extents = use.extents,
               .partial_rows = use.partial_rows,
               .space = {},
               .slices = use.slices,
               .swaps = use.swaps,
               .segments = use.segments,
               .same = use.same,
               .unaligned = use.unaligned};
  std::vector<Type>& in = use.in;
  std::vector<Pitch> pitches = use.slices.pitch;
  for (size_t i = 0; i < in.size(); ++i) {
    form.in.push_back(in[i].dtype);
    if (use.expr.uses(static_cast<int64_t>(i))) continue;
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
  std::fill(reduced.end() - use.row_dims, reduced.end(), true);
  form.space = make_iteration_space(shape, in, reduced, pitches);
  if (form.segments.any()) {
    const std::vector<int64_t> along = form.space.strides.back();
    form.space.strides.pop_back();
    form.segments.dim = std::ranges::find(along, 1) - along.begin();
  }
  return form;
}

// Of uses that share a launch, or of one.
std::vector<LoopKernel> kernels_of(const std::vector<RowUse>& uses, const Target& target) {
  std::vector<RowForm> forms;
  int64_t rows = 0;
  for (const RowUse& use : uses) rows += forms.emplace_back(form_of(use)).rows();
  // tables that the uses share are read by neighbours then
  const bool alternate =
      uses.size() > 1 && std::has_single_bit(forms.size()) &&
      std::ranges::all_of(forms, [&](const RowForm& f) { return f.rows() == forms[0].rows(); });
  std::vector<LoopKernel> kernels;
  for (RowForm& f : forms) {
    f.alternate = alternate;
    f.uses = static_cast<int>(forms.size());
    f.shared_rows = rows;
    kernels.push_back(write_rows(f, row_layout(f, target), target));
  }
  return kernels;
}

Addresses addresses_of(const RowUse& use, AddressCounter& counter) {
  std::vector<size_t> of_operands;
  std::vector<DType> types;
  for (size_t i = 0; i < use.in.size(); ++i) {
    of_operands.push_back(use.segments.of(i));
    types.push_back(use.in[i].dtype);
  }
  return counter.next(of_operands, use.slices, types, use.out.size());
}

GeneratedKernel kernel_of(const std::vector<RowUse>& uses, CudaDevice& device) {
  constexpr const char* name = "rows";
  AddressCounter counter;
  std::vector<Addresses> addresses;
  for (const RowUse& use : uses) addresses.push_back(addresses_of(use, counter));
  std::vector<LoopKernel> kernels = kernels_of(uses, target_of(device));
  return {name, compiled(name, kernels[0].kernel, device),
          prepared_launch(name, kernels, addresses)};
}

}  // namespace

struct RowPass::State {
  CudaDevice& device;
  std::optional<GeneratedKernel> kernel;  // none: there are no elements
};

bool RowPass::supports(const Shape& shape, int64_t row_dims, bool partials) {
  if (shape.rank() < row_dims) return false;
  int64_t length = 1;
  for (int64_t d = 1; d <= row_dims; ++d) length *= shape[-d];
  return length > 1 &&
         length <= (partials ? codegen::longest_row_with_partials : codegen::longest_row) &&
         shape.numel() < int64_t{1} << 31;
}

bool RowPass::share_a_launch(const std::vector<RowUse>& uses, const CudaDevice& device) {
  int64_t numel = 0;
  for (const RowUse& u : uses) {
    if (u.shape.numel() == 0 || !supports(u.shape, u.row_dims, u.partial_rows > 0)) return false;
    numel += u.shape.numel();
  }
  return numel < int64_t{1} << 31 && codegen::share_a_launch(kernels_of(uses, target_of(device)));
}

RowPass::RowPass(const std::vector<RowUse>& uses, CudaDevice& device) {
  State s{device, {}};
  if (uses.size() > 1 || uses[0].shape.numel() > 0) s.kernel.emplace(kernel_of(uses, device));
  state_ = std::make_shared<const State>(std::move(s));
}

void RowPass::run(std::span<void* const> in, std::span<void* const> out) const {
  if (state_->kernel) state_->kernel->run(in, out, state_->device);
}

}  // namespace ebb::cuda
