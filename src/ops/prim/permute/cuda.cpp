#include "backend/cuda/copy/strided_copy.h"
#include "ir/kernel.h"
#include "ops/prim/permute/op.h"

namespace ebb::ops::cuda {
namespace {

using ebb::cuda::CopyDim;

std::vector<CopyDim> dims_of(const Signature& s) {
  const Shape &x = s.in[0].shape, &y = s.out[0].shape;
  const auto own = x.strides();
  std::vector<int64_t> from;
  for (const int64_t d : s.as<Permute>().dims) from.push_back(own[static_cast<size_t>(d)]);
  return ebb::cuda::copy_dims(y.sizes(), from, y.strides());
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  ebb::cuda::StridedCopy copy(size_of(s.in[0].dtype), s.aligned);
  copy.add(dims_of(s));
  return {.run = [copy, &device](const Call& c) {
    copy.run("permute_copy", c.in, c.out[0], ebb::cuda::of(device));
  }};
}

}  // namespace

std::vector<Kernel> permute() {
  return {{.op = "permute",
           .name = "permute_copy",
           .supports =
               +[](const Signature& s, const Device&) { return ebb::cuda::can_copy(dims_of(s)); },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cuda
