// Several loops in one launch: generated kernels whose thread blocks find their loop.
#include <algorithm>

#include "ops/loop/cuda.h"
#include "ops/loops/op.h"

namespace ebb::ops::cuda {
namespace {

bool all_kernels_support(const Kernel& one, const std::vector<Signature>& parts, const Device& d) {
  return std::ranges::all_of(parts, [&](const Signature& p) { return one.supports(p, d); });
}

// Addresses of the operands' first elements; those of slices lie within their tensors.
std::vector<void*> operands_of(const std::vector<SlicesPass>& slices,
                               const std::vector<size_t>& tensors, std::span<void* const> in) {
  std::vector<void*> all;
  for (size_t u = 0, first = 0; u < slices.size(); first += tensors[u++])
    for (void* const p : slices[u].in(in.subspan(first, tensors[u]))) all.push_back(p);
  return all;
}

// The uses of a pass, what the kernel `one` of single loops makes of each part.
template <class Use>
struct Uses {
  std::vector<Use> uses;
  std::vector<SlicesPass> slices;
  std::vector<size_t> tensors;

  Uses(const Signature& s, Use (*use_of)(const Signature&)) {
    for (const Signature& part : parts_of(s)) {
      const auto& a = part.as<Loop>();
      uses.push_back(use_of(part));
      slices.push_back(slices_pass(a.slices, a.segments, part.in));
      tensors.push_back(part.in.size());
    }
  }
};

template <class Pass, class Use>
Program program_of(const Signature& s, Use (*use_of)(const Signature&), Device& device) {
  const Uses<Use> all(s, use_of);
  const Pass pass(all.uses, ebb::cuda::of(device));
  return {0, [pass, slices = all.slices, tensors = all.tensors](const Call& c) {
            pass.run(operands_of(slices, tensors, c.in), c.out);
          }};
}

// They run at the same time: an output may only alias inputs of its own loop.
bool may_alias(const Signature& s, size_t out, size_t in) {
  for (const Signature& part : parts_of(s)) {
    if (out < part.out.size() || in < part.in.size())
      return out < part.out.size() && in < part.in.size() && loop_map().may_alias(part, out, in);
    out -= part.out.size();
    in -= part.in.size();
  }
  return false;
}

Kernel kernel(std::string_view name) {
  return {.op = "loops",
          .name = name,
          .supports = nullptr,
          .prepare = nullptr,
          .in_place = true,
          .may_alias = may_alias};
}

Kernel maps() {
  Kernel k = kernel("loops_map_ptx");
  k.supports = +[](const Signature& s, const Device& d) {
    return all_kernels_support(loop_map(), parts_of(s), d) &&
           ebb::cuda::MapPasses::supports(Uses(s, map_use).uses, ebb::cuda::of(d));
  };
  k.prepare = +[](const Signature& s, const Tune&, Device& d) {
    return program_of<ebb::cuda::MapPasses>(s, map_use, d);
  };
  return k;
}

Kernel rows() {
  Kernel k = kernel("loops_rows_ptx");
  k.supports = +[](const Signature& s, const Device& d) {
    return all_kernels_support(loop_rows(), parts_of(s), d) &&
           ebb::cuda::RowPasses::supports(Uses(s, row_use).uses, ebb::cuda::of(d));
  };
  k.prepare = +[](const Signature& s, const Tune&, Device& d) {
    return program_of<ebb::cuda::RowPasses>(s, row_use, d);
  };
  return k;
}

}  // namespace

std::vector<Kernel> loops() { return {maps(), rows()}; }

}  // namespace ebb::ops::cuda
