#include "backend/cuda/copy/strided_copy.h"
#include "ir/kernel.h"
#include "ops/prim/slice/op.h"

namespace ebb::ops::cuda {
namespace {

Program prepare(const Signature& s, const Tune&, Device& device) {
  const auto& a = s.as<Slice>();
  const Shape &x = s.in[0].shape, &y = s.out[0].shape;
  ebb::cuda::StridedCopy copy(size_of(s.in[0].dtype), s.aligned);
  copy.add(ebb::cuda::copy_dims(y.sizes(), x.strides(), y.strides()),
           {.from = a.begin * x.strides()[static_cast<size_t>(a.dim)]});
  return {.run = [copy, &device](const Call& c) {
    copy.run("slice_copy", c.in, c.out[0], ebb::cuda::of(device));
  }};
}

}  // namespace

// Around the sliced dim all dims join: any rank will do.
std::vector<Kernel> slice() {
  return {{.op = "slice",
           .name = "slice_copy",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cuda
