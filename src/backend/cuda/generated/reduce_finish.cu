#include <algorithm>
#include <span>

#include "backend/cuda/device/launch.h"
#include "backend/cuda/generated/reduce_finish.h"
#include "backend/cuda/kit/prologue.cuh"

namespace ebb::cuda {
namespace {

constexpr int most_results = 16, most_dims = 6, threads = 256;

struct InnerDims {
  int rank = 0;
  unsigned size[most_dims] = {}, stride[most_dims] = {};
  unsigned count = 1;
};

struct FinishParams {
  const float* partial;
  void* out[most_results];
  DType dtype[most_results];
  InnerDims kept_dims, reduced_dims;  // of the inner index
  unsigned kept, chunks, inner;
  unsigned across;  // outputs of a block; a power of two
  float scale;
};

__device__ unsigned inner_index(const InnerDims& d, unsigned i) {
  unsigned at = 0;
  for (int k = d.rank - 1; k > 0; --k) {
    at += i % d.size[k] * d.stride[k];
    i /= d.size[k];
  }
  return at + (d.rank > 0 ? i * d.stride[0] : 0);
}

template <bool Maximum>
__device__ float combine(float a, float b) {
  return Maximum ? fmaxf(a, b) : a + b;
}

__device__ void write(const FinishParams& p, unsigned k, unsigned output, float v) {
  switch (p.dtype[k]) {
    case DType::bf16:
      static_cast<__nv_bfloat16*>(p.out[k])[output] = from_float<__nv_bfloat16>(v);
      break;
    case DType::f16: static_cast<__half*>(p.out[k])[output] = from_float<__half>(v); break;
    default: static_cast<float*>(p.out[k])[output] = v;
  }
}

// grid: outputs / across, results.  block: `across` outputs x the threads that share each.
// sums: f32, a tree.  deterministic: yes.
template <bool Maximum>
__global__ __launch_bounds__(threads) void finish(const __grid_constant__ FinishParams p) {
  begin();
  __shared__ float shared[threads];
  const unsigned x = threadIdx.x % p.across, y = threadIdx.x / p.across, k = blockIdx.y;
  const unsigned down = threads / p.across, output = blockIdx.x * p.across + x;
  const unsigned per_kept = p.kept_dims.count, folds = p.reduced_dims.count;
  const bool valid = output < p.kept * per_kept;
  constexpr float start = Maximum ? -INFINITY : 0.f;
  float sum[4] = {start, start, start, start};
  if (valid) {
    const size_t from = (size_t{k} * p.kept + output / per_kept) * p.chunks * p.inner +
                        inner_index(p.kept_dims, output % per_kept);
    const unsigned items = p.chunks * folds;
    const auto item = [&](unsigned i) {
      const unsigned chunk = folds == 1 ? i : i / folds, fold = folds == 1 ? 0 : i % folds;
      return p.partial[from + size_t{chunk} * p.inner + inner_index(p.reduced_dims, fold)];
    };
    unsigned i = y;
    for (; i + 3 * down < items; i += 4 * down)
#pragma unroll
      for (unsigned s = 0; s < 4; ++s) sum[s] = combine<Maximum>(sum[s], item(i + s * down));
    for (; i < items; i += down) sum[0] = combine<Maximum>(sum[0], item(i));
  }
  float v = combine<Maximum>(combine<Maximum>(sum[0], sum[1]), combine<Maximum>(sum[2], sum[3]));
  shared[threadIdx.x] = v;
  for (unsigned half = down / 2; half > 0; half /= 2) {
    __syncthreads();  // the rows above are complete
    if (y < half) {
      v = combine<Maximum>(v, shared[threadIdx.x + half * p.across]);
      shared[threadIdx.x] = v;
    }
  }
  if (valid && y == 0) write(p, k, output, Maximum ? v : v * p.scale);
}

void add_dim(InnerDims& d, int64_t size, int64_t stride) {
  require(d.rank < most_dims, "reduce: too many groups of dims (", d.rank + 1, ")");
  d.size[d.rank] = static_cast<unsigned>(size);
  d.stride[d.rank++] = static_cast<unsigned>(stride);
  d.count *= static_cast<unsigned>(size);
}

}  // namespace

void reduce_finish(const FinishForm& f, const float* partial, std::span<void* const> out,
                   CudaDevice& device) {
  FinishParams p = {};
  p.kept_dims.count = p.reduced_dims.count = 1;
  int64_t inner = 1;
  for (const int64_t s : f.sizes) inner *= s;
  int64_t stride = inner;
  for (size_t d = 0; d < f.sizes.size(); ++d) {
    stride /= f.sizes[d];
    add_dim(f.reduced[d] ? p.reduced_dims : p.kept_dims, f.sizes[d], stride);
  }
  p.kept = static_cast<unsigned>(f.kept);
  p.chunks = static_cast<unsigned>(f.chunks);
  p.inner = static_cast<unsigned>(inner);
  p.scale = f.scale;
  const int64_t outputs = f.kept * p.kept_dims.count;
  const int64_t items = f.chunks * p.reduced_dims.count;
  p.across = 32;
  while (p.across > 1 &&
         (p.across / 2 >= outputs || threads / p.across * 8 < items && outputs / p.across < 264))
    p.across /= 2;
  for (size_t first = 0; first < out.size(); first += most_results) {
    const size_t count = std::min<size_t>(most_results, out.size() - first);
    for (size_t k = 0; k < count; ++k) {
      p.out[k] = out[first + k];
      p.dtype[k] = f.out[first + k];
    }
    p.partial = partial + static_cast<int64_t>(first) * f.kept * f.chunks * inner;
    launch(
        "reduce_finish", f.maximum ? finish<true> : finish<false>,
        {.grid = {blocks_for(outputs, p.across), static_cast<unsigned>(count)}, .block = threads},
        p, device);
  }
}

}  // namespace ebb::cuda
