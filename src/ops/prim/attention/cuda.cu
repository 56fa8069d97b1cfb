// attention on the GPU: on tensor cores for 16-bit heads whose width is a multiple of 8 up to 256
// (on sm_90a by wgmma, cuda/sm90/), otherwise in plain f32.
#include <algorithm>

#include "backend/cuda/device/launch.h"
#include "base/round_up.h"
#include "ir/kernel.h"
#include "ir/roofline.h"
#include "ops/prim/attention/cuda/kernels.cuh"
#include "ops/prim/attention/cuda/plain.cuh"
#include "ops/prim/attention/cuda/sizes.cuh"
#include "ops/prim/attention/cuda/sm90/launch.h"

namespace ebb::ops::cuda {
namespace {

using ebb::ceil_div;
using ebb::cuda::CudaDevice;
using ebb::cuda::Launch;

int64_t plain_workspace(const HeadSizes& z) { return z.heads * z.t * 8; }

// One use of the op.
struct Use {
  AttentionSizes sizes;
  HeadSizes z;
  MaskParams mask;
  DType dtype;
};

Use use_of(const Signature& s) {
  const AttentionSizes z = attention_sizes(s);
  return {z, head_sizes(z), mask_of(z, s), s.in[0].dtype};
}

// `call` is unpacked.
void run_plain(const Use& u, const Call& call, CudaDevice& device) {
  const HeadSizes& z = u.z;
  PlainParams p{.z = z, .q = call.in[0], .k = call.in[1], .v = call.in[2], .out = call.out[0]};
  p.mask = mask_of(u.mask, u.sizes, call);
  p.lse = static_cast<float*>(call.out[1]);
  p.shift = static_cast<float*>(call.workspace);
  p.factor = p.shift + z.heads * z.t;
  p.pitch = z.t;
  p.tiles = static_cast<int>(ceil_div(z.t, kPlainTile));
  Launch l{.grid = static_cast<unsigned>(z.heads * p.tiles), .block = kPlainThreads};
  visit_float(u.dtype, [&](auto zero) {
    using T = decltype(zero);
    ebb::cuda::launch("attention_plain_sums", attention_plain_sums<T>, l, p, device);
    l.grid.y = static_cast<unsigned>(ceil_div(z.width, kPlainTile));
    ebb::cuda::launch("attention_plain", attention_plain<PlainSum::o, T>, l, p, device);
  });
}

std::string_view note_plain(const Signature& s) {
  return s.in[0].dtype == DType::f32 ? "" : "plain kernel, no tensor cores";
}

// Packed QKV without a better kernel is decomposed. Views of 16-bit elements that no better kernel
// reads stay copies, of which one may be.
bool supports_plain(const Signature& s, const Device&) {
  const AttentionSizes z = attention_sizes(s);
  return !z.packed && (!z.viewed || s.in[0].dtype == DType::f32);
}

Program prepare_plain(const Signature& s, const Tune&, Device& device) {
  const Use u = use_of(s);
  CudaDevice& d = ebb::cuda::of(device);
  return {.workspace = plain_workspace(u.z),
          .run = [=, &d](const Call& call) { run_plain(u, unpacked(u.sizes, u.dtype, call), d); }};
}

ForwardKernels forward_kernels(const Signature& s) {
  const AttentionSizes z = attention_sizes(s);
  return s.in[0].dtype == DType::bf16 ? forward_kernels_bf16(z.k, !z.plain())
                                      : forward_kernels_f16(z.k, !z.plain());
}

// Wide heads need more shared memory than every device has: RTX cards have 99 KB for a block.
bool supports_tiles(const Signature& s, const Device& device) {
  return on_tensor_cores(attention_sizes(s), s, device, 256) && takes_mask(s) &&
         forward_kernels(s).ring_bytes <= ebb::cuda::of(device).shared_per_block();
}

// Query tiles per thread block: enough thread blocks to fill the device once or twice, and no more,
// since each of them loads the keys again.
void assign_queries(ForwardParams& p, const ForwardKernels& k, bool resident,
                    const CudaDevice& device) {
  const int64_t tiles = ceil_div(p.z.t, k.rows);
  const int64_t slots = int64_t{device.sm_count()} * k.blocks;
  const int64_t heads = p.z.heads > 0 ? p.z.heads : 1;
  const int64_t per_block =
      resident ? ceil_div(tiles, std::clamp<int64_t>(ceil_div(slots, heads), 1, tiles)) : 1;
  p.tiles_per_block = static_cast<int>(per_block);
  p.query_blocks = static_cast<int>(ceil_div(tiles, per_block));
}

// A kernel, its launch and its parameters without addresses.
struct Choice {
  const char* name;
  void (*kernel)(ForwardParams);
  Launch launch;
  ForwardParams p;
};

Choice choose(const HeadSizes& z, const ForwardKernels& k, const CudaDevice& device) {
  ForwardParams p{.z = z, .query_blocks = 1};
  const auto blocks = static_cast<int>(ceil_div(z.s, 64));
  const bool resident = k.resident != nullptr && blocks <= kResidentBlocks;
  if (z.t > 0) assign_queries(p, k, resident, device);
  return {resident ? "attention_resident" : "attention_ring", resident ? k.resident : k.ring,
          Launch{.grid = static_cast<unsigned>(z.heads * p.query_blocks),
                 .block = kForwardThreads,
                 .shared = resident ? 2 * blocks * k.block_bytes : k.ring_bytes},
          p};
}

Program prepare_tiles(const Signature& s, const Tune&, Device& device) {
  const Use u = use_of(s);
  CudaDevice& d = ebb::cuda::of(device);
  const Choice c = choose(u.z, forward_kernels(s), d);
  const auto run = [=, &d](const Call& given) {
    const Call call = unpacked(u.sizes, u.dtype, given);
    ForwardParams p = c.p;
    p.q = call.in[0], p.k = call.in[1], p.v = call.in[2];
    p.o = call.out[0], p.lse = static_cast<float*>(call.out[1]);
    p.mask = mask_of(u.mask, u.sizes, call);
    if (u.z.t > 0) ebb::cuda::launch(c.name, c.kernel, c.launch, p, d);
  };
  return {.run = run};
}

}  // namespace

std::vector<Kernel> attention() {
  std::vector<Kernel> all = attention_sm90_short();
  for (const Kernel& k : attention_sm90()) all.push_back(k);
  for (const Kernel& k : attention_sm90_wide()) all.push_back(k);
  all.push_back({.op = "attention",
                 .name = "attention_tiles",
                 .supports = supports_tiles,
                 .prepare = prepare_tiles,
                 .cost = roofline<35, 50>});
  all.push_back({.op = "attention",
                 .name = "attention_plain",
                 .supports = supports_plain,
                 .prepare = prepare_plain,
                 .cost = roofline<1, 10>,
                 .note = note_plain});
  return all;
}

}  // namespace ebb::ops::cuda
