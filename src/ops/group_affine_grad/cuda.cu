// One launch: the first blocks take a sample each (group sums, then its channels), the others a
// few channels each for the sums over samples.
#include "backend/cuda/device/launch.h"
#include "backend/cuda/kit/prologue.cuh"
#include "ir/kernel.h"
#include "ops/group_affine_grad/op.h"

namespace ebb::ops::cuda {
namespace {

constexpr int threads = 256;
constexpr int lanes = 32;

struct Params {
  const float *s1, *s2, *mean, *rstd, *gamma;
  float *slope, *offset, *dgamma, *dbeta;
  int rows, channels, groups;
  float inverse;  // 1 / elements of a group
};

__device__ void sample(const Params& p, int row) {
  const int width = p.channels / p.groups;
  const int64_t base = static_cast<int64_t>(row) * p.channels;
  const int warp = static_cast<int>(threadIdx.x) / lanes,
            lane = static_cast<int>(threadIdx.x) % lanes;
  for (int g = warp; g < p.groups; g += threads / lanes) {
    float u = 0, w = 0;
    for (int k = lane; k < width; k += lanes) {
      const int c = g * width + k;
      const float gamma = p.gamma ? p.gamma[c] : 1.f;
      u += gamma * p.s1[base + c];
      w += gamma * p.s2[base + c];
    }
    u = ebb::cuda::warp_sum(u);
    w = ebb::cuda::warp_sum(w);
    for (int k = lane; k < width; k += lanes) {
      const int64_t i = base + g * width + k;
      const float rstd = p.rstd[i], slope = -rstd * rstd * rstd * w * p.inverse;
      p.slope[i] = slope;
      p.offset[i] = -rstd * u * p.inverse - p.mean[i] * slope;
    }
  }
}

// 32 channels of a block, one a lane; the warps share the samples.
__device__ void channel_sums(const Params& p, int first) {
  __shared__ float sums[2][threads / lanes][lanes];
  const int warp = static_cast<int>(threadIdx.x) / lanes,
            lane = static_cast<int>(threadIdx.x) % lanes;
  const int c = first + lane;
  float dgamma = 0, dbeta = 0;
  for (int r = warp; r < p.rows && c < p.channels; r += threads / lanes) {
    const int64_t i = static_cast<int64_t>(r) * p.channels + c;
    dgamma += p.s2[i] * p.rstd[i];
    dbeta += p.s1[i];
  }
  sums[0][warp][lane] = dgamma;
  sums[1][warp][lane] = dbeta;
  __syncthreads();
  if (warp != 0 || c >= p.channels) return;
  for (int k = 1; k < threads / lanes; ++k) {
    dgamma += sums[0][k][lane];
    dbeta += sums[1][k][lane];
  }
  p.dgamma[c] = dgamma;
  p.dbeta[c] = dbeta;
}

__global__ __launch_bounds__(threads) void affine_grad(const __grid_constant__ Params p) {
  ebb::cuda::begin();
  const int b = static_cast<int>(blockIdx.x);
  if (b < p.rows)
    sample(p, b);
  else
    channel_sums(p, (b - p.rows) * lanes);
}

Program prepare(const Signature& s, const Tune&, Device& d) {
  auto& device = ebb::cuda::of(d);
  const auto& a = s.as<GroupAffineGrad>();
  const int64_t channels = s.in[0].shape[-1];
  Params fixed = {};
  fixed.channels = static_cast<int>(channels);
  fixed.rows = static_cast<int>(channels ? s.in[0].shape.numel() / channels : 0);
  fixed.groups = static_cast<int>(a.groups);
  fixed.inverse =
      static_cast<float>(static_cast<double>(a.groups) /
                         (static_cast<double>(channels) * static_cast<double>(a.pixels)));
  return {.run = [=, &device](const Call& c) {
    Params p = fixed;
    const float** in[] = {&p.s1, &p.s2, &p.mean, &p.rstd, &p.gamma};
    for (size_t i = 0; i < c.in.size(); ++i) *in[i] = static_cast<const float*>(c.in[i]);
    float** out[] = {&p.slope, &p.offset, &p.dgamma, &p.dbeta};
    for (size_t i = 0; i < c.out.size(); ++i) *out[i] = static_cast<float*>(c.out[i]);
    const auto grid = static_cast<unsigned>(p.rows) + ebb::cuda::blocks_for(p.channels, lanes);
    ebb::cuda::launch("group_affine_grad", affine_grad, {.grid = grid, .block = threads}, p,
                      device);
  }};
}

bool supports(const Signature& s, const Device&) {
  for (const Type& t : s.in)
    if (t.dtype != DType::f32) return false;
  return true;
}

}  // namespace

std::vector<Kernel> group_affine_grad() {
  return {{.op = "group_affine_grad",
           .name = "group_affine_grad_blocks",
           .supports = supports,
           .prepare = prepare}};
}

}  // namespace ebb::ops::cuda
