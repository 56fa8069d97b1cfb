// attention of short sequences on sm_90a: selection and launch of the kernels.
#include "ops/prim/attention/cuda/sm90/short.cuh"

#include "backend/cuda/device/launch.h"
#include "ir/roofline.h"
#include "ops/prim/attention/cuda/sm90/bind.cuh"
#include "ops/prim/attention/cuda/sm90/launch.h"
#include "ops/prim/attention/cuda/widths.h"

namespace ebb::ops::cuda {

namespace {

constexpr int64_t kWidest = 64, kMost = 256;  // queries and keys

struct ShortKernel {
  void (*run)(ShortParams) = nullptr;
  void (*run_masked)(ShortParams) = nullptr;
  int keys = 0, most = 0;  // per block; in total
  int64_t bytes = 0;       // of shared memory
};

template <class T, int D, int Keys, int Blocks>
ShortKernel kernel_of() {
  using S = ShortShape<D, Keys, Blocks>;
  return {attention_sm90_short<T, S, false>, attention_sm90_short<T, S, true>, S::keys,
          S::keys * S::blocks, S::bytes};
}

template <class T, int D>
std::vector<ShortKernel> kernels_of_width() {
  return {kernel_of<T, D, 64, 1>(), kernel_of<T, D, 128, 2>()};
}
template <class T>
std::vector<ShortKernel> kernels_of(int64_t width) {
  return with_width<32, 64>(width, [](auto d) { return kernels_of_width<T, d.value>(); });
}

// Those that fit all keys, the better ones first.
std::vector<ShortKernel> kernels(const Signature& s) {
  const AttentionSizes z = attention_sizes(s);
  std::vector<ShortKernel> all =
      s.in[0].dtype == DType::bf16 ? kernels_of<__nv_bfloat16>(z.k) : kernels_of<__half>(z.k);
  std::erase_if(all, [&](const ShortKernel& k) { return z.s > k.most; });
  return all;
}

bool supports(const Signature& s, const Device& device) {
  const AttentionSizes z = attention_sizes(s);
  return on_sm90(s, device, kWidest) && z.t <= kMost && z.s > 0 && z.s <= kMost;
}

std::vector<Tune> space(const Signature& s, const Device&) {
  std::vector<Tune> all;
  for (const ShortKernel& k : kernels(s)) all.push_back(Tune{{{"keys", k.keys}}});
  return all;
}

Program prepare(const Signature& s, const Tune& tune, Device& device) {
  const AttentionSizes z = attention_sizes(s);
  const DType dtype = s.in[0].dtype;
  CudaDevice& d = of(device);
  const Tune best = tune.values.empty() ? space(s, device).front() : tune;
  ShortKernel k;
  for (const ShortKernel& one : kernels(s))
    if (one.keys == best.value("keys", 0)) k = one;
  require(k.run != nullptr, "attention: there is no such choice of the tuner  at ", s.at);
  ShortParams p{};
  p.f.z = head_sizes(z);
  p.f.mask = mask_of(z, s);
  p.f.query_blocks = static_cast<int>((z.t + kShortRows - 1) / kShortRows);
  const Launch launch{.grid = static_cast<unsigned>(p.f.z.heads * p.f.query_blocks),
                      .block = kShortThreads,
                      .shared = k.bytes};
  const auto run = [=, &d](const Call& given) {
    const Call call = unpacked(z, dtype, given);
    ShortParams own = p;
    bind(own, z, dtype, call, {kShortRows, k.keys, k.keys});
    own.o = map_of(p.f.z, dtype, {call.out[0], z.t, p.f.z.o, kShortRows});
    ebb::cuda::launch("attention_sm90_short", z.plain() ? k.run : k.run_masked, launch, own, d);
  };
  return {.run = run};
}

}  // namespace

std::vector<Kernel> attention_sm90_short() {
  return {{.op = "attention",
           .name = "attention_sm90_short",
           .supports = supports,
           .prepare = prepare,
           .space = space,
           .cost = roofline<68, 85>}};
}

}  // namespace ebb::ops::cuda
