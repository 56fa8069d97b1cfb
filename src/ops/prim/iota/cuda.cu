#include "backend/cuda/device/launch.h"
#include "backend/cuda/kit/prologue.cuh"
#include "ir/kernel.h"
#include "ops/prim/iota/op.h"

namespace ebb::ops::cuda {
namespace {

using namespace ebb::cuda;

constexpr int threads = 256;

struct Params {
  float* out;
  int64_t count, inner, size;
  double start, step;
};

// out[i] = start + step * (i / inner % size).  grid: one thread an element.
__global__ __launch_bounds__(threads) void iota_elements(const __grid_constant__ Params p) {
  begin();
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i < p.count)
    p.out[i] = static_cast<float>(p.start + p.step * static_cast<double>(i / p.inner % p.size));
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  const auto& a = s.as<Iota>();
  const Shape& y = s.out[0].shape;
  const Params p{.count = y.numel(),
                 .inner = y.slice(a.dim + 1, y.rank()).numel(),
                 .size = y[a.dim],
                 .start = a.start,
                 .step = a.step};
  return {.run = [p, &device](const Call& c) {
    Params now = p;
    now.out = static_cast<float*>(c.out[0]);
    launch("iota_elements", iota_elements, {.grid = blocks_for(p.count, threads), .block = threads},
           now, of(device));
  }};
}

}  // namespace

std::vector<Kernel> iota() {
  return {{.op = "iota",
           .name = "iota_elements",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cuda
