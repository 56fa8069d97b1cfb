#include "backend/cuda/generated/reduce.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "backend/cuda/generated/kernel.h"
#include "backend/cuda/generated/map.h"
#include "backend/cuda/generated/reduce_finish.h"
#include "codegen/expr_writer.h"
#include "codegen/loops/reduce_kernel.h"
#include "ir/expr_inputs.h"

namespace ebb::cuda {

using codegen::ReduceForm;
using codegen::ReduceLayout;

namespace {

// Whether the large inputs are of 16 bits, so that their rounding hides that of the functions.
bool narrow_inputs(const Expr& e, const std::vector<Type>& in, int64_t numel) {
  bool narrow = false;
  for (size_t i = 0; i < in.size(); ++i) {
    if (!e.uses(static_cast<int64_t>(i)) || in[i].shape.numel() != numel) continue;
    if (in[i].dtype != DType::bf16 && in[i].dtype != DType::f16) return false;
    narrow = true;
  }
  return narrow;
}

// The dims of `shape` that are not 1, as [kept..., run..., inner...]: the run is the outermost of
// the dims that are reduced and stand side by side.
struct Dims {
  std::vector<int64_t> sizes;
  std::vector<bool> reduced;
  size_t run_begin = 0, run_end = 0;
  std::vector<bool> in_run;  // by dim of `shape`

  Dims(const Shape& shape, const std::vector<bool>& all) : in_run(all.size()) {
    std::vector<size_t> from;
    for (size_t d = 0; d < all.size(); ++d) {
      const int64_t size = shape[static_cast<int64_t>(d)];
      if (size == 1) continue;
      sizes.push_back(size);
      reduced.push_back(all[d]);
      from.push_back(d);
    }
    while (run_begin < reduced.size() && !reduced[run_begin]) ++run_begin;
    run_end = run_begin;
    while (run_end < reduced.size() && reduced[run_end]) in_run[from[run_end++]] = true;
  }
  bool nothing() const { return run_begin == run_end; }
  bool folds() const {  // inner dims are reduced as well
    return std::find(reduced.begin() + static_cast<int64_t>(run_end), reduced.end(), true) !=
           reduced.end();
  }
};

ReduceForm form_of(const Expr& expr, const Shape& shape, std::vector<Type> in, const Dims& dims) {
  ReduceForm f{.expr = codegen::simplified(expr)};
  for (size_t i = 0; i < in.size(); ++i) {
    f.in.push_back(in[i].dtype);
    if (!expr.uses(static_cast<int64_t>(i))) in[i] = {};
  }
  f.space = make_iteration_space(shape, in, dims.in_run);
  const std::vector<bool>& run = f.space.reduced;
  while (!run[f.kept_dims]) ++f.kept_dims;
  f.run_end = f.kept_dims;
  while (f.run_end < run.size() && run[f.run_end]) ++f.run_end;
  f.narrow = narrow_inputs(expr, in, shape.numel());
  return f;
}

// The second stage: neighbours among the inner dims that are alike count as one.
FinishForm finish_of(const ReduceForm& form, const Dims& dims) {
  FinishForm f{.kept = form.kept(), .maximum = form.maximum, .scale = form.scale, .out = form.out};
  for (size_t d = dims.run_end; d < dims.sizes.size(); ++d) {
    if (d > dims.run_end && dims.reduced[d] == f.reduced.back()) {
      f.sizes.back() *= dims.sizes[d];
      continue;
    }
    f.sizes.push_back(dims.sizes[d]);
    f.reduced.push_back(dims.reduced[d]);
  }
  return f;
}

// The compiled first stage.
GeneratedKernel stage_of(const ReduceForm& form, const ReduceLayout& layout, CudaDevice& device) {
  constexpr const char* name = "reduce";
  codegen::LoopKernel kernel[] = {write_reduce(form, layout, target_of(device))};
  const Addresses addresses[] = {AddressCounter().next(
      std::vector<size_t>(form.in.size(), 1), {}, form.in, layout.direct ? form.out.size() : 1)};
  return {name, compiled(name, kernel[0].kernel, device), prepared_launch(name, kernel, addresses)};
}

// Same expression, scaled; or the value of an empty reduction.
Expr scaled(const Expr& e, double scale) {
  std::vector<Scalar> y = e.apply(inputs_as_scalars(e));
  for (Scalar& v : y) v = v * Scalar(scale);
  return Expr(e.inputs(), y);
}
Expr constants(const Expr& e, double value) {
  const std::vector<Scalar> y(e.results().size(), Scalar(value));
  return Expr(e.inputs(), y);
}

}  // namespace

struct ReducePass::State {
  CudaDevice& device;
  std::optional<MapPass> map;  // nothing is reduced, or nothing is there
  std::optional<GeneratedKernel> stage;
  std::optional<FinishForm> finish;  // none: the first stage writes the results
  int64_t partials = 0;              // that it reads
};

bool ReducePass::supports(const Shape& shape) { return shape.numel() < int64_t{1} << 31; }

ReducePass::ReducePass(const Expr& expr, const Shape& shape, std::vector<Type> in,
                       const Options& options, CudaDevice& device)
    : state_(std::make_shared<State>(State{device})) {
  State& s = *state_;
  const size_t results = expr.results().size();
  std::vector<bool> reduced(static_cast<size_t>(shape.rank()));
  Shape out = shape;
  for (const int64_t d : options.dims) {
    reduced[static_cast<size_t>(d)] = true;
    out[d] = 1;
  }
  if (out.numel() == 0) return;
  const Dims dims(shape, reduced);
  const auto map = [&](const Expr& e, const Shape& of, std::vector<Type> operands) {
    const MapUse use{.expr = e,
                     .shape = of,
                     .in = std::move(operands),
                     .out = options.out,
                     .unaligned = options.unaligned};
    s.map.emplace(std::vector{use}, device);
  };
  if (shape.numel() == 0) {
    const double none = options.maximum ? -std::numeric_limits<double>::infinity() : 0.0;
    map(constants(expr, none), out, std::vector<Type>(in.size()));
    return;
  }
  if (dims.nothing()) {
    map(options.maximum ? expr : scaled(expr, options.scale), shape, std::move(in));
    return;
  }
  ReduceForm form = form_of(expr, shape, std::move(in), dims);
  form.maximum = options.maximum;
  form.scale = static_cast<float>(options.scale);
  form.unaligned = options.unaligned;
  form.out = options.out;
  ReduceLayout layout = layout_of(form, target_of(device));
  layout.direct = layout.chunks == 1 && !dims.folds();
  s.stage.emplace(stage_of(form, layout, device));
  if (layout.direct) return;
  s.finish = finish_of(form, dims);
  s.finish->chunks = layout.chunks;
  s.partials = static_cast<int64_t>(results) * form.kept() * layout.chunks * form.inner();
}

int64_t ReducePass::workspace() const { return 4 * state_->partials; }

void ReducePass::run(std::span<void* const> in, std::span<void* const> out, void* workspace) const {
  State& s = *state_;
  if (s.map) return s.map->run(in, out);
  if (!s.stage) return;
  void* const partials[] = {workspace};
  s.stage->run(in, s.finish ? std::span<void* const>(partials) : out, s.device);
  if (s.finish) reduce_finish(*s.finish, static_cast<const float*>(workspace), out, s.device);
}

}  // namespace ebb::cuda
