#include "ir/kernel.h"
#include "ops/prim/iota/op.h"

namespace ebb::ops::cpu {
namespace {

Program prepare(const Signature& s, const Tune&, Device&) {
  const auto a = s.as<Iota>();
  const Shape& y = s.out[0].shape;
  const int64_t n = y.numel(), inner = y.slice(a.dim + 1, y.rank()).numel(), size = y[a.dim];
  return {.run = [=](const Call& c) {
    auto* out = static_cast<float*>(c.out[0]);
    for (int64_t i = 0; i < n; ++i)
      out[i] = static_cast<float>(a.start + a.step * static_cast<double>(i / inner % size));
  }};
}

}  // namespace

std::vector<Kernel> iota() {
  return {{.op = "iota",
           .name = "iota_loop",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cpu
