#include <algorithm>

#include "backend/cuda/device/launch.h"
#include "backend/cuda/kit/prologue.cuh"
#include "ir/kernel.h"
#include "ops/split/op.h"

namespace ebb::ops::cuda {
namespace {

constexpr int threads = 256;
constexpr int most_parts = 8;

// x is [outer, parts, inner] words; part j is [outer, inner].
struct Params {
  const void* x;
  void* part[most_parts];
  int64_t words, inner;
  int parts;
};

template <class Word>
__global__ __launch_bounds__(threads) void split_words(const __grid_constant__ Params p) {
  ebb::cuda::begin();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= p.words) return;
  const int64_t row = i / p.inner;  // outer, part
  const auto j = static_cast<int>(row % p.parts);
  Word* to = static_cast<Word*>(p.part[0]);
#pragma unroll
  for (int k = 1; k < most_parts; ++k)
    if (k == j) to = static_cast<Word*>(p.part[k]);
  to[row / p.parts * p.inner + i % p.inner] = static_cast<const Word*>(p.x)[i];
}

using WordKernel = void (*)(Params);

WordKernel kernel_of(int64_t bytes) {
  switch (bytes) {
    case 1: return split_words<uint8_t>;
    case 2: return split_words<uint16_t>;
    case 4: return split_words<uint32_t>;
    case 8: return split_words<uint2>;
    default: return split_words<uint4>;
  }
}

Program prepare(const Signature& s, const Tune&, Device& d) {
  auto& device = ebb::cuda::of(d);
  const auto& a = s.as<Split>();
  const Shape& x = s.in[0].shape;
  const int64_t element = size_of(s.in[0].dtype), bytes = s.in[0].bytes();
  const int64_t inner = x.slice(a.dim, x.rank()).numel() / a.parts * element;
  int64_t word = s.aligned ? Signature::alignment : element;
  while (inner % word != 0) word /= 2;
  const Params fixed{
      .words = bytes / word, .inner = inner / word, .parts = static_cast<int>(a.parts)};
  return {.run = [fixed, kernel = kernel_of(word), &device](const Call& c) {
    if (fixed.words == 0) return;
    Params p = fixed;
    p.x = c.in[0];
    std::copy(c.out.begin(), c.out.end(), p.part);
    ebb::cuda::launch("split", kernel,
                      {.grid = ebb::cuda::blocks_for(p.words, threads), .block = threads}, p,
                      device);
  }};
}

}  // namespace

std::vector<Kernel> split() {
  return {{.op = "split",
           .name = "split_words",
           .supports =
               +[](const Signature& s, const Device&) { return s.as<Split>().parts <= most_parts; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cuda
