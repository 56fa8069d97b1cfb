// Several loops in one launch: generated kernels whose thread blocks find their loop.
#include <algorithm>

#include "ops/loop/cuda.h"
#include "ops/loops/op.h"

namespace ebb::ops::cuda {
namespace {

bool all_kernels_support(const Kernel& one, const std::vector<Signature>& parts, const Device& d) {
  return std::ranges::all_of(parts, [&](const Signature& p) { return one.supports(p, d); });
}

// What the kernel of single loops takes of each.
template <class Use>
std::vector<Use> uses_of(const Signature& s, Use (*use_of)(const Signature&)) {
  std::vector<Use> uses;
  for (const Signature& part : parts_of(s)) uses.push_back(use_of(part));
  return uses;
}

template <class Pass>
Program program_of(const Pass& pass) {
  return {0, [pass](const Call& c) { pass.run(c.in, c.out); }};
}

// They run at the same time: an output may only alias inputs of its own loop.
bool may_alias(const Signature& s, size_t out, size_t in) {
  const size_t loops = s.as<Loops>().sizes.size();
  const size_t outputs = s.out.size() / loops, inputs = s.in.size() / loops;
  const size_t loop = out / outputs;
  return in / inputs == loop && loop_map().may_alias(part_of(s, loop), out % outputs, in % inputs);
}

Kernel kernel(std::string_view name) {
  return {.op = "loops",
          .name = name,
          .supports = nullptr,
          .prepare = nullptr,
          .in_place = true,
          .may_alias = may_alias};
}

// ---- whole tensors -----------------------------------------------------------------------------

using Flat = ebb::cuda::SegmentedMap;

// Whether operands are a whole tensor or a number, the same in all loops; one of a loop of one
// element fits either. Empty: they disagree, or the loops do more.
std::vector<Flat::Operand> flat_operands(const Signature& s) {
  const Loop& a = s.as<Loops>().loop;
  if (kind_of(a) != LoopKind::map || !a.segments.widths.empty() || !a.slices.operands.empty() ||
      !a.swaps.empty() || a.concatenated != 0)
    return {};
  const auto count = static_cast<size_t>(a.expr.inputs());
  const size_t outputs = a.results.size();
  std::vector<Flat::Operand> kinds(count, Flat::Operand::scalar);
  for (size_t i = 0; i < s.in.size(); ++i)
    if (s.in[i].shape.numel() != 1) kinds[i % count] = Flat::Operand::full;
  for (size_t i = 0; i < s.in.size(); ++i) {
    const int64_t elements = s.out[i / count * outputs].shape.numel();
    if (kinds[i % count] == Flat::Operand::full && s.in[i].shape.numel() != elements) return {};
  }
  return kinds;
}

Program prepare_flat(const Signature& s, const Tune&, Device& device) {
  const Loop& a = s.as<Loops>().loop;
  Flat::Options o{.kinds = flat_operands(s)};
  o.unaligned = !s.aligned;
  for (size_t i = 0; i < o.kinds.size(); ++i) o.in.push_back(s.in[i].dtype);
  for (const LoopResult& r : a.results) o.out.push_back(r.dtype);
  for (size_t k = 0; k < s.out.size(); k += o.out.size())
    o.counts.push_back(s.out[k].shape.numel());
  return program_of(Flat(a.expr, o, ebb::cuda::of(device)));
}

Kernel flat_maps() {
  Kernel k = kernel("loops_map_flat_ptx");
  k.supports = +[](const Signature& s, const Device&) { return !flat_operands(s).empty(); };
  k.prepare = prepare_flat;
  return k;
}

// ---- views -------------------------------------------------------------------------------------

Kernel maps() {
  Kernel k = kernel("loops_map_ptx");
  k.supports = +[](const Signature& s, const Device& d) {
    return kind_of(s.as<Loops>().loop) == LoopKind::map && flat_operands(s).empty() &&
           all_kernels_support(loop_map(), parts_of(s), d) &&
           ebb::cuda::MapPass::share_a_launch(uses_of(s, map_use), ebb::cuda::of(d));
  };
  k.prepare = +[](const Signature& s, const Tune&, Device& d) {
    return program_of(ebb::cuda::MapPass(uses_of(s, map_use), ebb::cuda::of(d)));
  };
  return k;
}

Kernel rows() {
  Kernel k = kernel("loops_rows_ptx");
  k.supports = +[](const Signature& s, const Device& d) {
    return kind_of(s.as<Loops>().loop) == LoopKind::rows &&
           all_kernels_support(loop_rows(), parts_of(s), d) &&
           ebb::cuda::RowPass::share_a_launch(uses_of(s, row_use), ebb::cuda::of(d));
  };
  k.prepare = +[](const Signature& s, const Tune&, Device& d) {
    return program_of(ebb::cuda::RowPass(uses_of(s, row_use), ebb::cuda::of(d)));
  };
  return k;
}

}  // namespace

std::vector<Kernel> loops() { return {flat_maps(), maps(), rows()}; }

}  // namespace ebb::ops::cuda
