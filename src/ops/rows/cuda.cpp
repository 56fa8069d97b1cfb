#include "backend/cuda/rows.h"
#include "ir/kernel.h"
#include "ops/rows/op.h"

namespace ebb::ops::cuda {
namespace {

using Output = ebb::cuda::RowsOutput;

Output output_of(Per per) {
  return per == Per::element ? Output::element : per == Per::row ? Output::row : Output::stripe;
}

bool supports(const Signature& s, const Device&) {
  const auto& a = s.as<Rows>();
  return ebb::cuda::RowsPass::supports(Shape(a.shape), a.stripe > 0);
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  const auto& a = s.as<Rows>();
  ebb::cuda::RowsPass::Options o{.maximum = maxima_of(a), .stripe = a.stripe};
  for (const Type& t : s.out) o.out.push_back(t.dtype);
  for (const Per per : per_of(a)) o.per.push_back(output_of(per));
  const ebb::cuda::RowsPass pass(a.expr, Shape(a.shape), s.in, o, ebb::cuda::of(device));
  return {0, [pass](const Call& c) { pass.run(c.in, c.out); }};
}

}  // namespace

std::vector<Kernel> rows() {
  return {{.op = "rows",
           .name = "rows_ptx",
           .supports = supports,
           .prepare = prepare,
           .in_place = true}};
}

}  // namespace ebb::ops::cuda
