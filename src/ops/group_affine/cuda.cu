#include "backend/cuda/device/launch.h"
#include "backend/cuda/kit/prologue.cuh"
#include "ir/kernel.h"
#include "ops/group_affine/op.h"

namespace ebb::ops::cuda {
namespace {

constexpr int threads = 256;

struct Params {
  const float *mean, *var, *gamma, *beta;
  float *scale, *shift, *wide_mean, *rstd;
  int64_t count;  // results of each kind
  int channels, groups;
  float eps;
};

__global__ __launch_bounds__(threads) void affine(const __grid_constant__ Params p) {
  ebb::cuda::begin();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= p.count) return;
  const int channel = static_cast<int>(i % p.channels);
  const int64_t group = i / p.channels * p.groups + channel / (p.channels / p.groups);
  const float mean = p.mean[group], rstd = rsqrtf(p.var[group] + p.eps);
  const float scale = p.gamma ? rstd * p.gamma[channel] : rstd;
  p.scale[i] = scale;
  p.shift[i] = (p.beta ? p.beta[channel] : 0.f) - mean * scale;
  p.wide_mean[i] = mean;
  p.rstd[i] = rstd;
}

Program prepare(const Signature& s, const Tune&, Device& d) {
  auto& device = ebb::cuda::of(d);
  const auto& a = s.as<GroupAffine>();
  Params fixed = {};
  fixed.count = s.out[0].shape.numel();
  fixed.channels = static_cast<int>(a.channels);
  fixed.groups = static_cast<int>(s.in[0].shape[-1]);
  fixed.eps = static_cast<float>(a.eps);
  return {.run = [=, &device](const Call& c) {
    Params p = fixed;
    p.mean = static_cast<const float*>(c.in[0]);
    p.var = static_cast<const float*>(c.in[1]);
    p.gamma = c.in.size() > 2 ? static_cast<const float*>(c.in[2]) : nullptr;
    p.beta = c.in.size() > 3 ? static_cast<const float*>(c.in[3]) : nullptr;
    p.scale = static_cast<float*>(c.out[0]);
    p.shift = static_cast<float*>(c.out[1]);
    p.wide_mean = static_cast<float*>(c.out[2]);
    p.rstd = static_cast<float*>(c.out[3]);
    ebb::cuda::launch("group_affine", affine,
                      {.grid = ebb::cuda::blocks_for(p.count, threads), .block = threads}, p,
                      device);
  }};
}

bool supports(const Signature& s, const Device&) {
  for (const Type& t : s.in)
    if (t.dtype != DType::f32) return false;
  return true;
}

}  // namespace

std::vector<Kernel> group_affine() {
  return {{.op = "group_affine",
           .name = "group_affine_channels",
           .supports = supports,
           .prepare = prepare}};
}

}  // namespace ebb::ops::cuda
