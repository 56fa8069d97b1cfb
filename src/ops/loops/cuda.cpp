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
    return all_kernels_support(loop_rows(), parts_of(s), d) &&
           ebb::cuda::RowPass::share_a_launch(uses_of(s, row_use), ebb::cuda::of(d));
  };
  k.prepare = +[](const Signature& s, const Tune&, Device& d) {
    return program_of(ebb::cuda::RowPass(uses_of(s, row_use), ebb::cuda::of(d)));
  };
  return k;
}

}  // namespace

std::vector<Kernel> loops() { return {maps(), rows()}; }

}  // namespace ebb::ops::cuda
