#include "backend/cuda/rows.h"
#include "ir/kernel.h"
#include "ops/rows/op.h"

namespace ebb::ops::cuda {
namespace {

Program prepare(const Signature& s, const Tune&, Device& device) {
  const auto& a = s.as<Rows>();
  ebb::cuda::RowsPass::Options o{.maximum = maxima_of(a)};
  for (size_t k = 0; k < s.out.size(); ++k) {
    o.out.push_back(s.out[k].dtype);
    o.wide.push_back(a.wide[k] != 0);
  }
  const ebb::cuda::RowsPass pass(a.expr, Shape(a.shape), s.in, o, ebb::cuda::of(device));
  return {0, [pass](const Call& c) { pass.run(c.in, c.out); }};
}

}  // namespace

std::vector<Kernel> rows() {
  return {{.op = "rows",
           .name = "rows_ptx",
           .supports =
               +[](const Signature& s, const Device&) {
                 return ebb::cuda::RowsPass::supports(Shape(s.as<Rows>().shape));
               },
           .prepare = prepare,
           .in_place = true}};
}

}  // namespace ebb::ops::cuda
