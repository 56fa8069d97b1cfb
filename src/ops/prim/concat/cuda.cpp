#include "backend/cuda/copy/strided_copy.h"
#include "ir/kernel.h"
#include "ops/prim/concat/op.h"

namespace ebb::ops::cuda {
namespace {

Program prepare(const Signature& s, const Tune&, Device& device) {
  const auto dim = static_cast<size_t>(s.as<Concat>().dim);
  const auto to = s.out[0].shape.strides();
  ebb::cuda::StridedCopy copy(size_of(s.out[0].dtype), s.aligned);
  int64_t at = 0;
  for (size_t i = 0; i < s.in.size(); ++i) {
    const Shape& x = s.in[i].shape;
    copy.add(ebb::cuda::copy_dims(x.sizes(), x.strides(), to), {.input = i, .to = at * to[dim]});
    at += x.sizes()[dim];
  }
  return {.run = [copy, &device](const Call& c) {
    copy.run("concat_copy", c.in, c.out[0], ebb::cuda::of(device));
  }};
}

}  // namespace

// Around the joined dim all dims join: any rank will do.
std::vector<Kernel> concat() {
  return {{.op = "concat",
           .name = "concat_copy",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cuda
