#include <algorithm>

#include "base/random.h"
#include "ir/kernel.h"
#include "ops/prim/random/op.h"

namespace ebb::ops::cpu {
namespace {

constexpr int64_t chunk = 4096;  // elements a thread draws at a time; a multiple of a block's 4

Program prepare(const Signature& s, const Tune&, Device&) {
  const auto& a = s.as<Random>();
  const int64_t images = s.in[1].shape[0], size = Shape(a.shape).numel();
  const auto fill = a.dist == Distribution::normal ? fill_normal : fill_uniform;
  const uint32_t use = random_use(a.use);
  return {.run = [=](const Call& c) {
    const auto* image = static_cast<const uint64_t*>(c.in[1]);
    const uint64_t seed = *static_cast<const uint64_t*>(c.in[0]);
    const auto step = static_cast<uint32_t>(*static_cast<const uint64_t*>(c.in[2]));
    auto* out = static_cast<float*>(c.out[0]);
    const int64_t chunks = (size + chunk - 1) / chunk;
#pragma omp parallel for schedule(static) if (images * size > chunk)
    for (int64_t i = 0; i < images * chunks; ++i) {
      const int64_t n = i / chunks, first = i % chunks * chunk;
      const auto count = static_cast<size_t>(std::min(chunk, size - first));
      fill({seed, image[n], step, use}, static_cast<uint64_t>(first / 4),
           {out + n * size + first, count});
    }
  }};
}

}  // namespace

std::vector<Kernel> random() {
  return {{.op = "random",
           .name = "random_philox",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cpu
