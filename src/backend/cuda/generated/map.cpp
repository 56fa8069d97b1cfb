#include "backend/cuda/generated/map.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "backend/cuda/generated/kernel.h"
#include "backend/cuda/generated/map_flat.h"
#include "backend/cuda/generated/map_strided.h"
#include "backend/cuda/generated/shared_kernel.h"
#include "backend/cuda/ptx/emit.h"
#include "base/error.h"
#include "codegen/expr_writer.h"
#include "ir/op.h"

namespace ebb::cuda {
namespace {

using Kind = SegmentedMap::Operand;

// ---- flat: one segment or many -----------------------------------------------------------------

struct Flat {
  FlatForm form;
  FlatText text;
  Generated kernel;

  Flat(FlatForm f, CudaDevice& device) : form(std::move(f)) {
    text = write_flat(form, device.capability());
    kernel = device.compiler().kernel(emit_ptx(std::exchange(text.code, {}), device.capability()),
                                      "pointwise");
  }

  // Writes entry e; returns the segment's blocks.
  int64_t fill(codegen::Parameters& p, int64_t e, int64_t first_block, int64_t count,
               std::span<void* const> in, std::span<void* const> out) const {
    const int64_t at = text.first_entry + e * text.entry_bytes;
    p.set(at, static_cast<uint32_t>(first_block));
    p.set(at + 8, static_cast<uint64_t>(count));
    int64_t field = at + 16;
    for (const size_t i : text.used) p.set(std::exchange(field, field + 8), in[i]);
    for (void* const to : out) p.set(std::exchange(field, field + 8), to);
    return (count + text.chunk - 1) / text.chunk;
  }

  void launch(codegen::Parameters& p, int64_t blocks, CudaDevice& device) const {
    void* arguments[] = {p.data()};
    launch_kernel(
        "pointwise", kernel.get(),
        {.grid = static_cast<unsigned>(blocks), .block = static_cast<unsigned>(text.threads)},
        arguments, device);
  }
};

// Whether some operand's first element lies off the alignment of its tensor.
bool begins_off(const SlicesForm& slices, const std::vector<DType>& types) {
  for (size_t i = 0; i < slices.pitch.size(); ++i)
    if (slices.has(i) && slices.begin[i] * size_of(types[i]) % Signature::alignment != 0)
      return true;
  return false;
}

// ---- strided -------------------------------------------------------------------------------

constexpr int64_t too_many = int64_t{1} << 31;  // elements for the 32-bit indices of one launch

StridedForm strided_form(const Expr& expr, const MapPass::Types& t, SegmentsForm segments,
                         const CudaDevice& device) {
  StridedForm f{.expr = codegen::simplified(expr),
                .in = {},
                .out = t.out,
                .space = {},
                .numel = t.shape.numel(),
                .unaligned = t.unaligned,
                .segments = std::move(segments),
                .slices = t.slices,
                .swaps = t.swaps,
                .same = t.same,
                .elements = t.shape.numel(),
                .sm_count = device.sm_count()};
  std::vector<Type> tensors;  // those that matter for the space
  std::vector<Pitch> pitches = t.slices.pitch;
  for (size_t i = 0; i < t.in.size(); ++i) {
    f.in.push_back(t.in[i].dtype);
    const bool used = expr.uses(static_cast<int64_t>(i));
    tensors.push_back(used ? t.in[i] : Type{DType::f32, Shape{}});
    if (!used && i < pitches.size()) pitches[i] = {};
  }
  tensors.push_back({DType::f32, t.shape});
  if (!f.segments.widths.empty())
    tensors.push_back({DType::f32, {t.shape[-1]}});  // keeps the last dim
  f.space = make_iteration_space(t.shape, tensors,
                                 std::vector<bool>(static_cast<size_t>(t.shape.rank())), pitches);
  f.space.strides.resize(t.in.size() + 1);
  return f;
}

// Of uses that share a launch.
std::vector<StridedText> texts_of(const std::vector<MapPasses::Use>& uses,
                                  const CudaDevice& device) {
  int64_t elements = 0;
  bool alternate = std::has_single_bit(uses.size());  // see RowPasses
  for (const MapPasses::Use& use : uses) {
    elements += use.types.shape.numel();
    alternate = alternate && use.types.shape.numel() == uses[0].types.shape.numel();
  }
  const auto write = [&](int most_steps) {
    std::vector<StridedText> texts;
    for (const MapPasses::Use& use : uses) {
      StridedForm f = strided_form(use.expr, use.types, use.segments, device);
      f.alternate = alternate;
      f.elements = elements;
      f.uses = static_cast<int>(uses.size());
      f.most_steps = most_steps;
      texts.push_back(write_strided(f, device.capability()));
    }
    return texts;
  };
  std::vector<StridedText> texts = write(0);
  const auto [least, most] = std::ranges::minmax_element(texts, {}, &StridedText::steps);
  return least->steps == most->steps ? texts : write(least->steps);
}

struct Strided : GeneratedKernel<StridedText> {
  Strided(const StridedForm& form, CudaDevice& device)
      : GeneratedKernel("pointwise", write_strided(form, device.capability()), device) {}

  void launch(const std::vector<void*>& pointers, CudaDevice& device) const {
    GeneratedKernel::launch(pointers, static_cast<unsigned>(text.blocks), device);
  }
};

// Some indices of the outermost dim of tensors that are too large for one launch.
struct Slab {
  MapPass pass;
  std::vector<int64_t> in, out;  // bytes from the start of each tensor
};

std::vector<void*> moved(std::span<void* const> from, const std::vector<int64_t>& bytes) {
  std::vector<void*> to;
  for (size_t i = 0; i < from.size(); ++i) to.push_back(static_cast<char*>(from[i]) + bytes[i]);
  return to;
}

// The outermost dim that has more than one index.
int64_t outermost(const Shape& shape) {
  int64_t dim = 0;
  while (shape[dim] == 1) ++dim;
  return dim;
}

std::vector<Slab> slabs_of(const Expr& expr, const MapPass::Types& whole, CudaDevice& device) {
  const int64_t dim = outermost(whole.shape), indices = whole.shape[dim];
  const int64_t inner = whole.shape.numel() / indices;
  const int64_t most = (too_many - 1) / inner, slabs = (indices + most - 1) / most;
  const int64_t each = (indices + slabs - 1) / slabs;
  std::vector<Slab> all;
  for (int64_t first = 0; first < indices; first += each) {
    MapPass::Types t = whole;
    t.shape[dim] = std::min(each, indices - first);
    std::vector<int64_t> in(t.in.size()), out;
    for (size_t i = 0; i < in.size(); ++i) {
      Shape& s = t.in[i].shape;
      const int64_t d = dim - (t.shape.rank() - s.rank());
      if (d < 0 || s[d] == 1) continue;
      in[i] = first * (t.in[i].bytes() / indices);
      s[d] = t.shape[dim];
    }
    for (const DType type : t.out) out.push_back(first * inner * size_of(type));
    for (const auto* offsets : {&in, &out})
      for (const int64_t bytes : *offsets) t.unaligned |= bytes % Signature::alignment != 0;
    all.push_back({MapPass(expr, std::move(t), {}, device), std::move(in), std::move(out)});
  }
  return all;
}

}  // namespace

struct MapPass::State {
  CudaDevice& device;
  int64_t numel = 0;
  std::optional<Flat> flat;
  std::optional<Strided> strided;
  std::vector<Slab> slabs;  // instead of these
};

bool MapPass::supports(const Shape& shape, const std::vector<Type>& in) {
  const int64_t numel = shape.numel();
  return numel < too_many || numel / shape[outermost(shape)] < too_many ||
         std::all_of(in.begin(), in.end(), [&](const Type& t) {
           return t.shape.numel() == numel || t.shape.numel() == 1;
         });
}

bool MapPass::supports_segments(const Shape& shape) { return shape.numel() < too_many; }

MapPass::MapPass(const Expr& expr, Types t, SegmentsForm segments, CudaDevice& device)
    : state_(std::make_shared<State>(State{device, t.shape.numel()})) {
  State& s = *state_;
  if (s.numel == 0) return;
  StridedForm form = strided_form(expr, t, std::move(segments), device);
  if (form.space.rank() == 1 && form.segments.widths.empty() &&
      !form.swaps.any()) {  // every tensor is full or one element
    std::vector<Kind> kinds;
    for (const Type& type : t.in)
      kinds.push_back(type.shape.numel() == s.numel && s.numel > 1 ? Kind::full : Kind::scalar);
    s.flat.emplace(FlatForm{.expr = form.expr,
                            .kinds = kinds,
                            .in = form.in,
                            .out = t.out,
                            .unaligned = t.unaligned || begins_off(t.slices, form.in),
                            .elements = s.numel,
                            .sm_count = device.sm_count()},
                   device);
    return;
  }
  if (s.numel >= too_many)
    s.slabs = slabs_of(expr, t, device);
  else
    s.strided.emplace(form, device);
}

void MapPass::run(std::span<void* const> in, std::span<void* const> out) const {
  State& s = *state_;
  if (s.numel == 0) return;
  if (s.flat) {
    codegen::Parameters p;
    p.add(s.flat->text.parameter_bytes);
    s.flat->launch(p, s.flat->fill(p, 0, 0, s.numel, in, out), s.device);
    return;
  }
  for (const Slab& slab : s.slabs) slab.pass.run(moved(in, slab.in), moved(out, slab.out));
  if (s.strided) s.strided->launch(s.strided->pointers(in, out), s.device);
}

// ---- several uses ------------------------------------------------------------------------------

struct MapPasses::State {
  CudaDevice& device;
  SharedKernel<StridedText> kernel;
};

bool MapPasses::supports(const std::vector<Use>& uses, const CudaDevice& device) {
  int64_t numel = 0;
  for (const Use& u : uses) {
    if (u.types.shape.numel() == 0) return false;
    numel += u.types.shape.numel();
  }
  if (numel >= too_many) return false;
  const std::vector<StridedText> texts = texts_of(uses, device);
  return are_one_text(std::span(texts));
}

MapPasses::MapPasses(const std::vector<Use>& uses, CudaDevice& device)
    : state_(std::make_shared<State>(
          State{device, SharedKernel<StridedText>("pointwise", texts_of(uses, device), device)})) {}

void MapPasses::run(std::span<void* const> in, std::span<void* const> out) const {
  state_->kernel.launch(in, out, state_->device);
}

// ---- segments ------------------------------------------------------------------------------

struct SegmentedMap::State {
  CudaDevice& device;
  std::vector<int64_t> counts;
  std::optional<Flat> flat;
};

SegmentedMap::SegmentedMap(const Expr& expr, const Options& options, CudaDevice& device)
    : state_(std::make_shared<State>(State{device, options.counts})) {
  if (options.counts.empty()) return;
  FlatForm form{.expr = codegen::simplified(expr),
                .kinds = options.kinds,
                .in = options.in,
                .out = options.out,
                .segmented = true,
                .unaligned = options.unaligned,
                .sm_count = device.sm_count()};
  for (const int64_t n : options.counts) form.elements += n;
  const int64_t entry = flat_entry_bytes(form.in.size() + form.out.size());
  const int64_t most = (most_parameters - 8) / entry;
  require(most > 0, "pointwise: too many tensors (", form.in.size() + form.out.size(), ")");
  form.segments = std::min(
      most, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(options.counts.size()))));
  state_->flat.emplace(std::move(form), device);
}

void SegmentedMap::run(std::span<void* const> in, std::span<void* const> out) const {
  const State& s = *state_;
  if (!s.flat) return;
  const Flat& flat = *s.flat;
  const size_t inputs = flat.form.in.size(), outputs = flat.form.out.size();
  const auto most = static_cast<size_t>(flat.form.segments);
  for (size_t first = 0; first < s.counts.size(); first += most) {
    const size_t count = std::min(most, s.counts.size() - first);
    codegen::Parameters p;
    p.add(flat.text.parameter_bytes);
    p.set(0, static_cast<uint32_t>(count));
    int64_t blocks = 0;
    for (size_t e = 0; e < count; ++e)
      blocks += flat.fill(p, static_cast<int64_t>(e), blocks, s.counts[first + e],
                          in.subspan((first + e) * inputs, inputs),
                          out.subspan((first + e) * outputs, outputs));
    flat.launch(p, blocks, s.device);
  }
}

}  // namespace ebb::cuda
