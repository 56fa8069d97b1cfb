#include "backend/cuda/rows.h"
#include "ir/kernel.h"
#include "ops/prim/cuda_columns.h"
#include "ops/rows/op.h"

namespace ebb::ops::cuda {
namespace {

using Output = ebb::cuda::RowsOutput;

Output output_of(Per per) {
  return per == Per::element ? Output::element : per == Per::row ? Output::row : Output::stripe;
}

bool supports(const Signature& s, const Device&) {
  const auto& a = s.as<Rows>();
  return can_step(a.columns, s.in) && ebb::cuda::RowsPass::supports(Shape(a.shape), a.stripe > 0);
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  const auto& a = s.as<Rows>();
  ebb::cuda::RowsPass::Options o{.maximum = maxima_of(a), .stripe = a.stripe};
  for (const Type& t : s.out) o.out.push_back(t.dtype);
  for (const Per per : per_of(a)) o.per.push_back(output_of(per));
  const ColumnsPass columns = columns_pass(a.columns, {}, s.in);
  o.columns = columns.form;
  const ebb::cuda::RowsPass pass(a.expr, Shape(a.shape), column_types(a.columns, s.in, "rows"), o,
                                 ebb::cuda::of(device));
  return {0, [pass, columns](const Call& c) { pass.run(columns.in(c.in), c.out); }};
}

}  // namespace

std::vector<Kernel> rows() {
  return {{.op = "rows",
           .name = "rows_ptx",
           .supports = supports,
           .prepare = prepare,
           .in_place = true,
           .may_share = +[](const Signature& s, size_t, size_t in) {
             return !s.as<Rows>().columns.of(in);
           }}};
}

}  // namespace ebb::ops::cuda
