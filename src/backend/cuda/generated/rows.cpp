#include "backend/cuda/generated/rows.h"

#include <optional>

#include "backend/cuda/generated/kernel.h"
#include "backend/cuda/generated/row_text.h"
#include "codegen/expr_writer.h"

namespace ebb::cuda {
namespace {

struct RowKernel : GeneratedKernel<RowText> {
  RowKernel(const RowForm& form, bool unaligned, CudaDevice& device)
      : GeneratedKernel(
            "rows",
            write_rows(form, row_layout(form, device.sm_count(), unaligned), device.capability()),
            device) {}

  void launch(const std::vector<void*>& pointers, CudaDevice& device) const {
    GeneratedKernel::launch(pointers, static_cast<unsigned>(text.blocks), device);
  }
};

}  // namespace

struct RowPass::State {
  CudaDevice& device;
  RowForm form;
  std::optional<RowKernel> kernel, unaligned;  // unaligned: compiled when it is needed first
};

bool RowPass::supports(const Shape& shape, bool partials) {
  return shape.rank() > 0 && shape[-1] > 1 &&
         shape[-1] <= (partials ? longest_row_with_partials : longest_row) &&
         shape.numel() < int64_t{1} << 31;
}

RowPass::RowPass(const Expr& expr, const Shape& shape, std::vector<Type> in, const Options& options,
                 CudaDevice& device)
    : state_(std::make_shared<State>(State{device})) {
  State& s = *state_;
  if (shape.numel() == 0) return;
  s.form.expr = codegen::simplified(expr);
  s.form.out = options.out;
  s.form.extents = options.extents;
  s.form.partial_rows = options.partial_rows;
  s.form.maximum = options.maximum;
  s.form.slices = options.slices;
  s.form.swaps = options.swaps;
  std::vector<int64_t> widths = options.slices.width;
  for (size_t i = 0; i < in.size(); ++i) {
    s.form.in.push_back(in[i].dtype);
    if (expr.uses(static_cast<int64_t>(i))) continue;
    in[i] = {};
    if (i < widths.size()) widths[i] = 0;
  }
  in.push_back({DType::f32, shape});
  std::vector<bool> reduced(static_cast<size_t>(shape.rank()));
  reduced.back() = true;
  s.form.space = make_iteration_space(shape, in, reduced, widths);
  s.kernel.emplace(s.form, false, device);
}

void RowPass::run(std::span<void* const> in, std::span<void* const> out) const {
  State& s = *state_;
  if (!s.kernel) return;
  const auto pointers = s.kernel->pointers(in, out);
  if (s.kernel->takes(pointers)) return s.kernel->launch(pointers, s.device);
  if (!s.unaligned) s.unaligned.emplace(s.form, true, s.device);
  s.unaligned->launch(s.unaligned->pointers(in, out), s.device);
}

}  // namespace ebb::cuda
