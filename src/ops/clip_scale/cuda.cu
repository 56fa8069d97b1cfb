// clip_scale over many gradients: one launch sums the squares of chunks, a second one adds them up.
#include <algorithm>
#include <array>

#include "backend/cuda/device/launch.h"
#include "backend/cuda/kit/prologue.cuh"
#include "ir/kernel.h"
#include "ops/clip_scale/op.h"

namespace ebb::ops::cuda {
namespace {

using ebb::cuda::launch;

constexpr int threads = 512;
constexpr int chunk = 32768;           // elements a block sums
constexpr int tensors_a_launch = 500;  // their table travels as a parameter
constexpr float largest = 3.4e38f;     // a sum above it is infinite

struct SquaresParams {
  const float* data[tensors_a_launch];
  int64_t count[tensors_a_launch];
  int first_chunk[tensors_a_launch + 1];  // of each tensor, among the chunks of this launch
  int tensors;
  bool aligned;  // all to 16 bytes
  float* partial;
};

// partial[b] = sum of squares of chunk b. Grid: one block a chunk.
__global__ __launch_bounds__(threads) void sum_squares(const __grid_constant__ SquaresParams p) {
  ebb::cuda::begin();
  const int b = static_cast<int>(blockIdx.x);
  int low = 0, high = p.tensors;  // the tensor with first_chunk[low] <= b < first_chunk[low + 1]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (p.first_chunk[middle] <= b ? low : high) = middle;
  }
  const int64_t first = static_cast<int64_t>(b - p.first_chunk[low]) * chunk;
  const int count = static_cast<int>(::min(p.count[low] - first, static_cast<int64_t>(chunk)));
  const float* x = p.data[low] + first;
  float sum = 0;
  if (p.aligned) {
    for (int i = threadIdx.x * 4; i + 3 < count; i += threads * 4) {
      const float4 v = *reinterpret_cast<const float4*>(x + i);
      sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    const int tail = count / 4 * 4 + static_cast<int>(threadIdx.x);
    if (tail < count) sum += x[tail] * x[tail];
  } else {
    for (int i = threadIdx.x; i < count; i += threads) sum += x[i] * x[i];
  }
  sum = ebb::cuda::block_sum<threads>(sum);
  if (threadIdx.x == 0) p.partial[b] = sum;
}

struct JoinParams {
  const float* partial;
  int count;
  double max_norm;
  float *scale, *norm;
};

// The gradients' norm and the factor that clips it to max_norm (0: no limit); 0 if it is not
// finite. One block.
__global__ __launch_bounds__(threads) void join_squares(const __grid_constant__ JoinParams p) {
  ebb::cuda::begin();
  float sum = 0;
  for (int i = threadIdx.x; i < p.count; i += threads) sum += p.partial[i];
  sum = ebb::cuda::block_sum<threads>(sum);
  if (threadIdx.x != 0) return;
  const float norm = sqrtf(sum), limit = static_cast<float>(p.max_norm);
  const float wanted = limit > 0 ? fminf(1.f, limit / (norm + 1e-6f)) : 1.f;
  *p.scale = sum < largest ? wanted : 0.f;
  *p.norm = norm;
}

// The tensors [first, last) of one launch.
struct LaunchRange {
  size_t first = 0, last = 0;
  int chunks = 0;
};

int chunks_of(const Type& t) { return static_cast<int>((t.shape.numel() + chunk - 1) / chunk); }

std::vector<LaunchRange> launches_of(const Signature& s) {
  std::vector<LaunchRange> launches;
  for (size_t i = 0; i < s.in.size(); ++i) {
    if (i % tensors_a_launch == 0) launches.push_back({i, i, 0});
    launches.back().last = i + 1;
    launches.back().chunks += chunks_of(s.in[i]);
  }
  return launches;
}

void run_launch(const Signature& s, const LaunchRange& range, const Call& c, float* partial,
                ebb::cuda::CudaDevice& device) {
  SquaresParams p = {};
  p.aligned = s.aligned;
  p.partial = partial;
  for (size_t i = range.first; i < range.last; ++i) {
    const auto k = static_cast<size_t>(p.tensors++);
    p.data[k] = static_cast<const float*>(c.in[i]);
    p.count[k] = s.in[i].shape.numel();
    p.first_chunk[k + 1] = p.first_chunk[k] + chunks_of(s.in[i]);
  }
  launch("sum_squares", sum_squares,
         {.grid = static_cast<unsigned>(range.chunks), .block = threads}, p, device);
}

Program prepare(const Signature& s, const Tune&, Device& d) {
  const std::vector<LaunchRange> launches = launches_of(s);
  int chunks = 0;
  for (const LaunchRange& p : launches) chunks += p.chunks;
  auto& device = ebb::cuda::of(d);
  const double max_norm = s.as<ClipScale>().max_norm;
  return {.workspace = std::max(chunks, 1) * static_cast<int64_t>(sizeof(float)),
          .run = [=, &device](const Call& c) {
            auto* partial = static_cast<float*>(c.workspace);
            for (const LaunchRange& p : launches) {
              run_launch(s, p, c, partial, device);
              partial += p.chunks;
            }
            const JoinParams p{static_cast<const float*>(c.workspace), chunks, max_norm,
                               static_cast<float*>(c.out[0]), static_cast<float*>(c.out[1])};
            launch("join_squares", join_squares, {.grid = 1, .block = threads}, p, device);
          }};
}

bool supports(const Signature& s, const Device&) {
  return std::all_of(s.in.begin(), s.in.end(), [](const Type& t) { return t.dtype == DType::f32; });
}

}  // namespace

std::vector<Kernel> clip_scale() {
  return {
      {.op = "clip_scale", .name = "clip_scale_chunks", .supports = supports, .prepare = prepare}};
}

}  // namespace ebb::ops::cuda
