#include "backend/cuda/device/launch.h"
#include "backend/cuda/kit/elements.cuh"
#include "base/random.h"
#include "ir/kernel.h"
#include "ops/prim/random/op.h"

namespace ebb::ops::cuda {
namespace {

using namespace ebb::cuda;

constexpr int threads = 256;

struct Params {
  const uint64_t *seed, *image, *step;
  float* out;
  int64_t images, size, blocks;  // blocks of 4 numbers an image
  uint32_t use;
  bool whole;  // every block may be stored as one access
};

// As normals_from of base/random.h. The functions in double, rounded to f32, are what good f32
// functions of a host return but in rare cases: devices draw the same numbers.
__device__ __forceinline__ void normals(uint32_t a, uint32_t b, float* out) {
  const float r = sqrtf(-2.0f * static_cast<float>(::log(static_cast<double>(uniform_from(a)))));
  double sine, cosine;
  ::sincos(static_cast<double>(__fmul_rn(6.283185307179586f, uniform_from(b))), &sine, &cosine);
  out[0] = r * static_cast<float>(cosine);
  out[1] = r * static_cast<float>(sine);
}

// out[n, e] = number e of the stream of image n.  grid: one thread a block of 4 numbers.
template <bool Normal>
__global__ __launch_bounds__(threads) void random_philox(const __grid_constant__ Params p) {
  begin();
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= p.images * p.blocks) return;
  const int64_t n = i / p.blocks, block = i - n * p.blocks;
  const RandomKey key{*p.seed, p.image[n], static_cast<uint32_t>(*p.step), p.use};
  const Philox w = random_block(key, static_cast<uint64_t>(block));
  Vec<float, 4> numbers;
  if constexpr (Normal) {
    normals(w[0], w[1], numbers.v);
    normals(w[2], w[3], numbers.v + 2);
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) numbers.v[k] = uniform_from(w[k]);
  }
  float* const to = p.out + n * p.size + block * 4;
  if (p.whole) {
    *reinterpret_cast<Vec<float, 4>*>(to) = numbers;
    return;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (block * 4 + k < p.size) to[k] = numbers.v[k];
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  const auto& a = s.as<ops::Random>();
  const int64_t size = Shape(a.shape).numel();
  const Params p{.images = s.in[1].shape[0],
                 .size = size,
                 .blocks = (size + 3) / 4,
                 .use = random_use(a.use),
                 .whole = size % 4 == 0 && s.aligned};
  const auto kernel =
      a.dist == ops::Distribution::normal ? random_philox<true> : random_philox<false>;
  return {.run = [p, kernel, &device](const Call& c) {
    Params now = p;
    now.seed = static_cast<const uint64_t*>(c.in[0]);
    now.image = static_cast<const uint64_t*>(c.in[1]);
    now.step = static_cast<const uint64_t*>(c.in[2]);
    now.out = static_cast<float*>(c.out[0]);
    launch("random_philox", kernel,
           {.grid = blocks_for(p.images * p.blocks, threads), .block = threads}, now, of(device));
  }};
}

}  // namespace

std::vector<Kernel> random() {
  return {{.op = "random",
           .name = "random_philox",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cuda
