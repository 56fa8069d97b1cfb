#include "backend/cuda/generated/rows.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "backend/cuda/generated/kernel.h"
#include "backend/cuda/generated/row_text.h"
#include "backend/cuda/generated/shared_kernel.h"
#include "codegen/expr_writer.h"

namespace ebb::cuda {
namespace {

RowForm form_of(RowUse use) {
  const Shape& shape = use.shape;
  const RowPass::Options& options = use.options;
  RowForm form{.expr = codegen::simplified(use.expr),
               .in = {},
               .out = options.out,
               .maximum = options.maximum,
               .extents = options.extents,
               .partial_rows = options.partial_rows,
               .space = {},
               .slices = options.slices,
               .swaps = options.swaps,
               .segments = options.segments,
               .same = options.same,
               .unaligned = options.unaligned};
  std::vector<Type>& in = use.in;
  std::vector<Pitch> pitches = options.slices.pitch;
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
  std::fill(reduced.end() - options.row_dims, reduced.end(), true);
  form.space = make_iteration_space(shape, in, reduced, pitches);
  if (form.segments.any()) {
    const std::vector<int64_t> along = form.space.strides.back();
    form.space.strides.pop_back();
    form.segments.dim = std::ranges::find(along, 1) - along.begin();
  }
  return form;
}

// Of uses that share a launch.
std::vector<RowText> texts_of(const std::vector<RowUse>& uses, const CudaDevice& device) {
  std::vector<RowForm> forms;
  int64_t rows = 0;
  for (const RowUse& use : uses) rows += forms.emplace_back(form_of(use)).rows();
  // tables that the uses share are read by neighbours then
  const bool alternate =
      std::has_single_bit(forms.size()) &&
      std::ranges::all_of(forms, [&](const RowForm& f) { return f.rows() == forms[0].rows(); });
  std::vector<RowText> texts;
  for (RowForm& f : forms) {
    f.alternate = alternate;
    f.uses = static_cast<int>(forms.size());
    f.shared_rows = rows;
    texts.push_back(write_rows(f, row_layout(f, device.sm_count()), device.capability()));
  }
  return texts;
}

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
  if (shape.numel() > 0)
    state_->kernel.emplace(form_of({expr, shape, std::move(in), options}), device);
}

void RowPass::run(std::span<void* const> in, std::span<void* const> out) const {
  const State& s = *state_;
  if (s.kernel) s.kernel->launch(s.kernel->pointers(in, out), s.device);
}

// ---- several uses ------------------------------------------------------------------------------

struct RowPasses::State {
  CudaDevice& device;
  SharedKernel<RowText> kernel;
};

bool RowPasses::supports(const std::vector<RowUse>& uses, const CudaDevice& device) {
  int64_t numel = 0;
  for (const RowUse& u : uses) {
    const RowPass::Options& o = u.options;
    if (u.shape.numel() == 0 || !RowPass::supports(u.shape, o.row_dims, o.partial_rows > 0))
      return false;
    numel += u.shape.numel();
  }
  if (numel >= int64_t{1} << 31) return false;
  const std::vector<RowText> texts = texts_of(uses, device);
  return are_one_text(std::span(texts));
}

RowPasses::RowPasses(const std::vector<RowUse>& uses, CudaDevice& device)
    : state_(std::make_shared<State>(
          State{device, SharedKernel<RowText>("rows", texts_of(uses, device), device)})) {}

void RowPasses::run(std::span<void* const> in, std::span<void* const> out) const {
  state_->kernel.launch(in, out, state_->device);
}

}  // namespace ebb::cuda
