#include "backend/cuda/generated/map.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "backend/cuda/generated/kernel.h"
#include "base/error.h"
#include "base/round_up.h"
#include "codegen/expr_writer.h"
#include "codegen/loops/map_strided.h"
#include "ir/op.h"

namespace ebb::cuda {

using codegen::FlatForm;
using codegen::FlatKernel;
using codegen::LoopKernel;
using codegen::SegmentsForm;
using codegen::SlicesForm;
using codegen::StridedForm;
using codegen::Target;

struct MapPass::State {
  CudaDevice& device;
  std::vector<GeneratedKernel> kernels;  // each with its part of the work

  void run(std::span<void* const> in, std::span<void* const> out) const {
    for (const GeneratedKernel& k : kernels) k.run(in, out, device);
  }
};

namespace {

constexpr const char* kernel_name = "pointwise";

// ---- flat: one segment or many -----------------------------------------------------------------

// A segment and its tensors.
struct FlatSegment {
  int64_t count = 0;
  Addresses addresses;
};

PreparedLaunch flat_launch(const FlatKernel& flat, std::span<const FlatSegment> segments) {
  codegen::Parameters p;
  p.add(flat.parameter_bytes);
  if (flat.first_entry > 0) p.set(0, static_cast<uint32_t>(segments.size()));
  PreparedLaunch launch;
  int64_t blocks = 0, entry = flat.first_entry;
  for (const FlatSegment& s : segments) {
    p.set(entry, static_cast<uint32_t>(blocks));
    p.set(entry + 8, static_cast<uint64_t>(s.count));
    int64_t field = entry + 16;
    for (const size_t i : flat.used)
      launch.in.push_back({std::exchange(field, field + 8), s.addresses.in[i]});
    for (const TensorAddress& to : s.addresses.out)
      launch.out.push_back({std::exchange(field, field + 8), to});
    blocks += ceil_div(s.count, flat.chunk);
    entry += flat.entry_bytes;
  }
  launch.shape = {.grid = static_cast<unsigned>(blocks),
                  .block = static_cast<unsigned>(flat.threads)};
  launch.parameters = p.bytes();
  return launch;
}

// Whether the first element of some operand or result lies off the alignment of its tensor.
bool begins_off(const Addresses& addresses) {
  const auto off = [](const TensorAddress& a) { return a.bytes % Signature::alignment != 0; };
  return std::ranges::any_of(addresses.in, off) || std::ranges::any_of(addresses.out, off);
}

// ---- strided -------------------------------------------------------------------------------

constexpr int64_t too_many = int64_t{1} << 31;  // elements for the 32-bit indices of one launch

StridedForm strided_form(const MapUse& use) {
  StridedForm f{.expr = codegen::simplified(use.expr),
                .in = {},
                .out = use.out,
                .space = {},
                .numel = use.shape.numel(),
                .unaligned = use.unaligned,
                .segments = use.segments,
                .slices = use.slices,
                .swaps = use.swaps,
                .same = use.same,
                .concatenated = use.concatenated,
                .elements = use.shape.numel()};
  std::vector<Type> tensors;  // those that matter for the space
  std::vector<Pitch> pitches = use.slices.pitch;
  for (size_t i = 0; i < use.in.size(); ++i) {
    f.in.push_back(use.in[i].dtype);
    const bool used = use.expr.uses(static_cast<int64_t>(i));
    tensors.push_back(used ? use.in[i] : Type{DType::f32, Shape{}});
    if (!used && i < pitches.size()) pitches[i] = {};
  }
  tensors.push_back({DType::f32, use.shape});
  if (f.concatenated > 0) {
    const int64_t width = use.shape[-1];
    pitches.resize(tensors.size());
    pitches.push_back({width, static_cast<int64_t>(f.concatenated) * width});
    tensors.push_back({DType::f32, use.shape});
  }
  const size_t kept = tensors.size();
  if (!f.segments.widths.empty())
    tensors.push_back({DType::f32, {use.shape[-1]}});  // keeps the last dim
  f.space = make_iteration_space(use.shape, tensors,
                                 std::vector<bool>(static_cast<size_t>(use.shape.rank())), pitches);
  f.space.strides.resize(kept);
  return f;
}

// Of uses that share a launch.
std::vector<LoopKernel> kernels_of(const std::vector<MapUse>& uses, const Target& target) {
  int64_t elements = 0;
  bool alternate = uses.size() > 1 && std::has_single_bit(uses.size());  // see RowPass
  for (const MapUse& use : uses) {
    elements += use.shape.numel();
    alternate = alternate && use.shape.numel() == uses[0].shape.numel();
  }
  const auto write = [&](int most_steps) {
    std::vector<LoopKernel> kernels;
    for (const MapUse& use : uses) {
      StridedForm f = strided_form(use);
      f.alternate = alternate;
      f.elements = elements;
      f.uses = static_cast<int>(uses.size());
      f.most_steps = most_steps;
      kernels.push_back(write_strided(f, target));
    }
    return kernels;
  };
  std::vector<LoopKernel> kernels = write(0);
  const auto [least, most] = std::ranges::minmax_element(kernels, {}, &LoopKernel::steps);
  return least->steps == most->steps ? kernels : write(least->steps);
}

// ---- what a pass launches ----------------------------------------------------------------------

Addresses addresses_of(const MapUse& use, AddressCounter& counter) {
  std::vector<size_t> of_operands;
  std::vector<DType> types;
  size_t results = 0;
  for (size_t i = 0; i < use.in.size(); ++i) {
    of_operands.push_back(use.segments.of(i, use.segments.segmented_in));
    types.push_back(use.in[i].dtype);
  }
  for (size_t k = 0; k < use.out.size(); ++k)
    results += use.segments.of(k, use.segments.segmented_out);
  if (use.concatenated == 0) return counter.next(of_operands, use.slices, types, results);
  Addresses a = counter.next(of_operands, use.slices, types, results - use.concatenated + 1);
  const int64_t bytes = use.shape[-1] * size_of(use.out.back());
  while (a.out.size() < results) {
    a.out.push_back(a.out.back());
    a.out.back().bytes += bytes;
  }
  return a;
}

// The outermost dim that has more than one index.
int64_t outermost(const Shape& shape) {
  int64_t dim = 0;
  while (shape[dim] == 1) ++dim;
  return dim;
}

class Preparation {
 public:
  explicit Preparation(MapPass::State& s) : s_(s), target_(target_of(s.device)) {}

  void several(const std::vector<MapUse>& uses) {
    AddressCounter counter;
    std::vector<Addresses> addresses;
    for (const MapUse& use : uses) addresses.push_back(addresses_of(use, counter));
    std::vector<LoopKernel> kernels = kernels_of(uses, target_);
    add(kernels, addresses);
  }

  void one(const MapUse& use) {
    AddressCounter counter;
    one(use, addresses_of(use, counter));
  }

 private:
  void one(const MapUse& use, const Addresses& addresses) {
    const int64_t numel = use.shape.numel();
    const StridedForm form = strided_form(use);
    if (form.space.rank() == 1 && form.segments.widths.empty() && !form.swaps.any())
      return flat(use, form, addresses);  // every tensor is full or one element
    if (numel >= too_many) return slabs(use, addresses);
    LoopKernel kernels[] = {write_strided(form, target_)};
    add(kernels, {&addresses, 1});
  }

  void add(std::span<LoopKernel> kernels, std::span<const Addresses> addresses) {
    const Generated code = compiled(kernel_name, kernels[0].kernel, s_.device);
    s_.kernels.emplace_back(kernel_name, code, prepared_launch(kernel_name, kernels, addresses));
  }

  void flat(const MapUse& use, const StridedForm& form, const Addresses& addresses) {
    const int64_t numel = use.shape.numel();
    FlatForm f{.expr = form.expr,
               .in = form.in,
               .out = use.out,
               .unaligned = use.unaligned || begins_off(addresses),
               .elements = numel};
    for (const Type& type : use.in)
      f.kinds.push_back(type.shape.numel() == numel && numel > 1 ? codegen::FlatOperand::full
                                                                 : codegen::FlatOperand::scalar);
    const FlatKernel kernel = write_flat(f, target_);
    const FlatSegment all{numel, addresses};
    s_.kernels.emplace_back(kernel_name, compiled(kernel_name, kernel.kernel, s_.device),
                            flat_launch(kernel, {&all, 1}));
  }

  // Some indices of the outermost dim at a time, of tensors that are too large for one launch.
  void slabs(const MapUse& whole, const Addresses& addresses) {
    const int64_t dim = outermost(whole.shape), indices = whole.shape[dim];
    const int64_t inner = whole.shape.numel() / indices;
    const int64_t most = (too_many - 1) / inner, slabs = ceil_div(indices, most);
    const int64_t each = ceil_div(indices, slabs);
    for (int64_t first = 0; first < indices; first += each) {
      MapUse use = whole;
      Addresses at = addresses;
      use.shape[dim] = std::min(each, indices - first);
      const auto move = [&](TensorAddress& a, int64_t bytes) {
        a.bytes += bytes;
        use.unaligned |= bytes % Signature::alignment != 0;
      };
      for (size_t i = 0; i < use.in.size(); ++i) {
        Shape& s = use.in[i].shape;
        const int64_t d = dim - (use.shape.rank() - s.rank());
        if (d < 0 || s[d] == 1) continue;
        move(at.in[i], first * (use.in[i].bytes() / indices));
        s[d] = use.shape[dim];
      }
      for (size_t k = 0; k < use.out.size(); ++k)
        move(at.out[k], first * inner * size_of(use.out[k]));
      one(use, at);
    }
  }

  MapPass::State& s_;
  Target target_;
};

}  // namespace

bool MapPass::supports(const Shape& shape, const std::vector<Type>& in) {
  const int64_t numel = shape.numel();
  return numel < too_many || numel / shape[outermost(shape)] < too_many ||
         std::all_of(in.begin(), in.end(), [&](const Type& t) {
           return t.shape.numel() == numel || t.shape.numel() == 1;
         });
}

bool MapPass::supports_segments(const Shape& shape) { return shape.numel() < too_many; }

bool MapPass::share_a_launch(const std::vector<MapUse>& uses, const CudaDevice& device) {
  int64_t numel = 0;
  for (const MapUse& u : uses) {
    if (u.shape.numel() == 0) return false;
    numel += u.shape.numel();
  }
  return numel < too_many && codegen::share_a_launch(kernels_of(uses, target_of(device)));
}

MapPass::MapPass(const std::vector<MapUse>& uses, CudaDevice& device) {
  State s{device, {}};
  if (uses.size() > 1)
    Preparation(s).several(uses);
  else if (uses[0].shape.numel() > 0)
    Preparation(s).one(uses[0]);
  state_ = std::make_shared<const State>(std::move(s));
}

void MapPass::run(std::span<void* const> in, std::span<void* const> out) const {
  state_->run(in, out);
}

// ---- segments ------------------------------------------------------------------------------

SegmentedMap::SegmentedMap(const Expr& expr, const Options& options, CudaDevice& device) {
  MapPass::State s{device, {}};
  if (!options.counts.empty()) {
    FlatForm form{.expr = codegen::simplified(expr),
                  .kinds = options.kinds,
                  .in = options.in,
                  .out = options.out,
                  .segmented = true,
                  .unaligned = options.unaligned};
    for (const int64_t n : options.counts) form.elements += n;
    const size_t inputs = form.in.size(), outputs = form.out.size();
    const int64_t most =
        (codegen::most_parameters - 8) / codegen::flat_entry_bytes(inputs + outputs);
    require(most > 0, "pointwise: too many tensors (", inputs + outputs, ")");
    form.segments = std::min(
        most, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(options.counts.size()))));
    const FlatKernel flat = write_flat(form, target_of(device));
    const Generated code = compiled(kernel_name, flat.kernel, device);
    AddressCounter counter;
    std::vector<FlatSegment> segments;
    for (const int64_t n : options.counts)
      segments.push_back(
          {n, counter.next(std::vector<size_t>(inputs, 1), {}, options.in, outputs)});
    const std::span<const FlatSegment> all = segments;
    for (size_t first = 0; first < all.size(); first += static_cast<size_t>(form.segments)) {
      const size_t count = std::min(static_cast<size_t>(form.segments), all.size() - first);
      s.kernels.emplace_back(kernel_name, code, flat_launch(flat, all.subspan(first, count)));
    }
  }
  state_ = std::make_shared<const MapPass::State>(std::move(s));
}

void SegmentedMap::run(std::span<void* const> in, std::span<void* const> out) const {
  state_->run(in, out);
}

}  // namespace ebb::cuda
