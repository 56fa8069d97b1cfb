#include "backend/cpu/copy.h"
#include "ir/kernel.h"
#include "ops/prim/concat/op.h"

namespace ebb::ops::cpu {
namespace {

Program prepare(const Signature& s, const Tune&, Device&) {
  const auto dim = static_cast<size_t>(s.as<Concat>().dim);
  const int64_t bytes = size_of(s.out[0].dtype);
  const auto to = s.out[0].shape.strides();
  struct Segment {
    ebb::cpu::StridedCopy copy;
    int64_t offset;
  };
  std::vector<Segment> segments;
  int64_t at = 0;
  for (const Type& t : s.in) {
    segments.push_back(
        {{ebb::cpu::copy_dims(t.shape, t.shape.strides(), to), bytes}, at * to[dim] * bytes});
    at += t.shape.sizes()[dim];
  }
  return {.run = [segments](const Call& c) {
    for (size_t i = 0; i < segments.size(); ++i)
      segments[i].copy.run(c.in[i], static_cast<char*>(c.out[0]) + segments[i].offset);
  }};
}

}  // namespace

std::vector<Kernel> concat() {
  return {{.op = "concat",
           .name = "concat_copy",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cpu
