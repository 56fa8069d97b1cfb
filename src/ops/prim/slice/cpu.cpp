#include "backend/cpu/copy.h"
#include "ir/kernel.h"
#include "ops/prim/slice/op.h"

namespace ebb::ops::cpu {
namespace {

Program prepare(const Signature& s, const Tune&, Device&) {
  const auto& a = s.as<Slice>();
  const Shape &x = s.in[0].shape, &y = s.out[0].shape;
  const ebb::cpu::StridedCopy copy(ebb::cpu::copy_dims(y, x.strides(), y.strides()),
                                   size_of(s.in[0].dtype));
  const int64_t skip = a.begin * x.strides()[static_cast<size_t>(a.dim)] * size_of(s.in[0].dtype);
  return {.run = [copy, skip](const Call& c) {
    copy.run(static_cast<const char*>(c.in[0]) + skip, c.out[0]);
  }};
}

}  // namespace

std::vector<Kernel> slice() {
  return {{.op = "slice",
           .name = "slice_copy",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cpu
