#include "backend/cuda/copy/strided_copy.h"
#include "ir/kernel.h"
#include "ops/prim/pad/op.h"

namespace ebb::ops::cuda {
namespace {

using ebb::cuda::CopyDim;

std::vector<CopyDim> dims_of(const Signature& s) {
  const Shape &x = s.in[0].shape, &y = s.out[0].shape;
  std::vector<CopyDim> dims = ebb::cuda::copy_dims(y.sizes(), x.strides(), y.strides());
  for (size_t d = 0; d < dims.size(); ++d) {
    dims[d].before = s.as<Pad>().before[d];
    dims[d].extent = x.sizes()[d];
  }
  return dims;
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  ebb::cuda::StridedCopy copy(size_of(s.in[0].dtype), s.aligned);
  copy.add(dims_of(s));
  return {.run = [copy, &device](const Call& c) {
    copy.run("pad_copy", c.in, c.out[0], ebb::cuda::of(device));
  }};
}

}  // namespace

std::vector<Kernel> pad() {
  return {{.op = "pad",
           .name = "pad_copy",
           .supports =
               +[](const Signature& s, const Device&) { return ebb::cuda::can_copy(dims_of(s)); },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cuda
