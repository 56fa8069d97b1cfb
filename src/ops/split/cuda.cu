#include <array>

#include "backend/cuda/kit/prologue.cuh"
#include "backend/cuda/launch.h"
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

template <class Word>
void run(Params p, int64_t bytes, int64_t inner_bytes, ebb::cuda::CudaDevice& device) {
  p.words = bytes / static_cast<int64_t>(sizeof(Word));
  p.inner = inner_bytes / static_cast<int64_t>(sizeof(Word));
  ebb::cuda::launch("split", split_words<Word>,
                    {.grid = ebb::cuda::blocks_for(p.words, threads), .block = threads}, p, device);
}

Program prepare(const Signature& s, const Tune&, Device& d) {
  auto& device = ebb::cuda::of(d);
  const auto& a = s.as<Split>();
  const Shape& x = s.in[0].shape;
  const int64_t element = size_of(s.in[0].dtype), bytes = s.in[0].bytes();
  const int64_t inner = x.slice(a.dim, x.rank()).numel() / a.parts * element;
  return {.run = [=, &device](const Call& c) {
    if (bytes == 0) return;
    Params p = {};
    p.x = c.in[0];
    p.parts = static_cast<int>(a.parts);
    auto together = reinterpret_cast<uintptr_t>(c.in[0]) | static_cast<uintptr_t>(inner);
    for (size_t j = 0; j < c.out.size(); ++j) {
      p.part[j] = c.out[j];
      together |= reinterpret_cast<uintptr_t>(c.out[j]);
    }
    if (together % 16 == 0)
      run<uint4>(p, bytes, inner, device);
    else if (together % 4 == 0)
      run<uint32_t>(p, bytes, inner, device);
    else if (together % 2 == 0)
      run<uint16_t>(p, bytes, inner, device);
    else
      run<uint8_t>(p, bytes, inner, device);
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
