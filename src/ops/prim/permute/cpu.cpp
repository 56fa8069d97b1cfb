#include "backend/cpu/copy.h"
#include "ir/kernel.h"
#include "ops/prim/permute/op.h"

namespace ebb::ops::cpu {
namespace {

Program prepare(const Signature& s, const Tune&, Device&) {
  const Shape &x = s.in[0].shape, &y = s.out[0].shape;
  const auto own = x.strides();
  std::vector<int64_t> from;
  for (const int64_t d : s.as<Permute>().dims) from.push_back(own[static_cast<size_t>(d)]);
  const ebb::cpu::StridedCopy copy(ebb::cpu::copy_dims(y, from, y.strides()),
                                   size_of(s.in[0].dtype));
  return {.run = [copy](const Call& c) { copy.run(c.in[0], c.out[0]); }};
}

}  // namespace

std::vector<Kernel> permute() {
  return {{.op = "permute",
           .name = "permute_copy",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cpu
