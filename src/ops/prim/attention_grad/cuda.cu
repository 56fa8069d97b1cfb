// attention_grad on the GPU: on tensor cores for 16-bit heads whose width is a multiple of 8: up to
// 160 by fused kernels (on sm_90a in one pass up to 128), a single wider one by GEMMs. Otherwise in
// plain f32.
#include <algorithm>

#include "backend/cuda/device/launch.h"
#include "base/round_up.h"
#include "ir/kernel.h"
#include "ir/roofline.h"
#include "ops/prim/attention/cuda/plain.cuh"
#include "ops/prim/attention/cuda/sizes.cuh"
#include "ops/prim/attention_grad/cuda/gemms.cuh"
#include "ops/prim/attention_grad/cuda/kernels.cuh"
#include "ops/prim/attention_grad/cuda/sm90/launch.cuh"
#include "ops/prim/attention_grad/op.h"

namespace ebb::ops::cuda {
namespace {

struct Use {
  AttentionSizes sizes;
  HeadSizes z;
  MaskParams mask;
  DType dtype, lse_dtype, dlse_dtype = DType::f32;
  int64_t pitch;
  int64_t workspace() const { return z.heads * pitch * 8; }
};

Use use_of(const Signature& s) {
  const AttentionSizes sizes = attention_grad_sizes(s);
  const size_t lse = sizes.operands() + 1;
  Use u{.sizes = sizes,
        .z = head_sizes(sizes),
        .mask = mask_of(sizes, s),
        .dtype = s.in[0].dtype,
        .lse_dtype = s.in[lse].dtype};
  if (s.in.size() == lse + 3) u.dlse_dtype = s.in[lse + 2].dtype;
  u.pitch = ceil_div(u.z.t, kGradBlock) * kGradBlock;
  return u;
}

GradParams params_of(const Use& u, const Call& given) {
  const Call call = unpacked(u.sizes, u.dtype, given);
  const size_t o = call_at(u.sizes).o;
  GradParams p{.z = u.z, .q = call.in[0], .k = call.in[1], .v = call.in[2], .o = call.in[o]};
  p.lse = call.in[o + 1], p.dout = call.in[o + 2];
  p.dlse = call.in.size() == o + 4 ? call.in[o + 3] : nullptr;
  p.mask = mask_of(u.mask, u.sizes, call);
  p.dq = call.out[0], p.dk = call.out[1], p.dv = call.out[2];
  p.lse_log2 = static_cast<float*>(call.workspace);
  p.delta = p.lse_log2 + u.z.heads * u.pitch;
  p.pitch = u.pitch;
  p.lse_dtype = u.lse_dtype, p.dlse_dtype = u.dlse_dtype;
  const auto& at = u.sizes.at;
  p.dout_lies = strides_of(at.dout), p.dq_lies = strides_of(at.dq);
  p.dk_lies = strides_of(at.dk), p.dv_lies = strides_of(at.dv);
  return p;
}

void run_plain(const Use& u, const Call& call, CudaDevice& device) {
  const GradParams g = params_of(u, call);
  PlainParams p{.z = u.z, .q = g.q, .k = g.k, .v = g.v, .dout = g.dout};
  p.shift = g.lse_log2, p.delta = g.delta, p.pitch = g.pitch, p.mask = g.mask;
  p.dout_lies = g.dout_lies;
  visit_float(u.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto rows = blocks_for(u.z.heads * u.pitch, kRowThreads / kRowLanes);
    launch("attention_grad_preprocess", attention_grad_preprocess<T, 1>,
           {.grid = rows, .block = kRowThreads}, g, device);
    const auto sum = [&](const char* name, void (*kernel)(PlainParams), void* out,
                         const HeadStrides& lies, int count) {
      p.out = out, p.out_lies = lies;
      p.tiles = static_cast<int>(ceil_div(count, kPlainTile));
      const dim3 grid(static_cast<unsigned>(u.z.heads * p.tiles),
                      static_cast<unsigned>(ceil_div(u.z.width, kPlainTile)));
      launch(name, kernel, {.grid = grid, .block = kPlainThreads}, p, device);
    };
    sum("attention_plain_dq", attention_plain<PlainSum::dq, T>, g.dq, g.dq_lies, u.z.t);
    sum("attention_plain_dk", attention_plain<PlainSum::dk, T>, g.dk, g.dk_lies, u.z.s);
    sum("attention_plain_dv", attention_plain<PlainSum::dv, T>, g.dv, g.dv_lies, u.z.s);
  });
}

std::string_view note_plain(const Signature& s) {
  return s.in[0].dtype == DType::f32 ? "" : "plain kernel, no tensor cores";
}

// Packed QKV and grouped heads without a better kernel are decomposed, and views of 16-bit elements
// that no better kernel reads stay copies.
bool supports_plain(const Signature& s, const Device&) {
  const AttentionSizes z = attention_sizes(s);
  return !z.packed && z.group() == 1 && (!z.viewed || s.in[0].dtype == DType::f32);
}

bool has_tensor_cores(const Signature& s, const Device& device, int64_t widest) {
  return on_tensor_cores(attention_grad_sizes(s), s, device, widest);
}

Program prepare_plain(const Signature& s, const Tune&, Device& device) {
  const Use u = use_of(s);
  CudaDevice& d = of(device);
  return {.workspace = u.workspace(), .run = [=, &d](const Call& call) { run_plain(u, call, d); }};
}

// One launch over all heads: thread blocks over the keys, and, if `queries` > 0, over the queries.
void run_tiles(const char* name, const GradKernel& k, GradParams p, int queries,
               CudaDevice& device) {
  p.key_tiles = static_cast<int>(ceil_div(p.z.s, k.rows));
  p.query_tiles = queries > 0 ? static_cast<int>(ceil_div(p.z.t, queries)) : 0;
  launch(name, k.run,
         {.grid = static_cast<unsigned>(p.z.heads * (p.key_tiles + p.query_tiles)),
          .block = static_cast<unsigned>(k.threads),
          .shared = k.bytes},
         p, device);
}

GradKernels grad_kernels(const Use& u) {
  if (!u.sizes.plain())
    return u.dtype == DType::bf16 ? masked_grad_kernels_bf16(u.z.width)
                                  : masked_grad_kernels_f16(u.z.width);
  return u.dtype == DType::bf16 ? grad_kernels_bf16(u.z.width, u.z.t, u.z.s)
                                : grad_kernels_f16(u.z.width, u.z.t, u.z.s);
}

// The kernels compute and move whole blocks of so many queries and keys.
double cost_of_blocks(const Signature& s, const Device& device, Shares shares, int64_t queries,
                      int64_t keys) {
  const AttentionSizes z = attention_sizes(s);
  const auto filled = [](int64_t n, int64_t block) {
    return n == 0 ? 1 : static_cast<double>(n) / static_cast<double>(ceil_div(n, block) * block);
  };
  const double share = filled(z.t, queries) * filled(z.s, keys);
  return roofline(cost_of(s), s.in[0].dtype, device, {shares.flops * share, shares.bytes * share});
}

// Wide heads need more shared memory than every device has: RTX cards have 99 KB for a block.
bool supports_tiles(const Signature& s, const Device& device) {
  if (!has_tensor_cores(s, device, 160) || !takes_mask(s) || attention_sizes(s).group() > 1)
    return false;
  return grad_kernels(use_of(s)).ring.bytes <= of(device).shared_per_block();
}

GradKernels tiles_of(const Use& u, const CudaDevice& d) {
  GradKernels k = grad_kernels(u);
  if (k.head.bytes > d.shared_per_block()) k.head = {};
  if (k.group.bytes > d.shared_per_block() || d.capability() != 90) k.group = {};
  return k;
}

// Heads that are in shared memory as a whole take one pass, others two.
double cost_tiles(const Signature& s, const Device& device) {
  const GradKernels k = tiles_of(use_of(s), of(device));
  if (k.group.run) return cost_of_blocks(s, device, {.3, .5}, 64, k.group.rows);
  if (k.head.run) return cost_of_blocks(s, device, {.3, .5}, 16, k.head.rows);
  return cost_of_blocks(s, device, {.2, .25}, k.ring_queries, k.ring.rows);
}

Program prepare_tiles(const Signature& s, const Tune&, Device& device) {
  const Use u = use_of(s);
  if (u.z.t == 0) return prepare_plain(s, {}, device);
  CudaDevice& d = of(device);
  const GradKernels k = tiles_of(u, d);
  const auto run = [=, &d](const Call& call) {
    const GradParams p = params_of(u, call);
    if (k.group.run) return run_tiles("attention_grad_group", k.group, p, 0, d);
    if (k.head.run) return run_tiles("attention_grad_head", k.head, p, 0, d);
    launch("attention_grad_preprocess", k.preprocess.run,
           {.grid = blocks_for(u.z.heads * u.pitch, k.preprocess.rows), .block = kRowThreads}, p,
           d);
    run_tiles("attention_grad_ring", k.ring, p, k.ring_queries, d);
  };
  return {.workspace = u.workspace(), .run = run};
}

// By the kernels of sm_90a: without a bias or lengths.
bool runs_at_once(const Signature& s, const Device& device) {
  const AttentionSizes z = attention_sizes(s);
  return has_tensor_cores(s, device, 128) && !z.bias && !z.key_lengths &&
         of(device).capability() == 90;
}

bool supports_at_once(const Signature& s, const Device& device) {
  if (!runs_at_once(s, device)) return false;
  const Use u = use_of(s);
  // The kernels count the steps from head to head of a row of o and do in 32 bits.
  const int64_t step = std::max(u.sizes.at.o.a, u.sizes.at.dout.a);
  if (u.sizes.a * step >= int64_t{1} << 31) return false;
  if (u.z.t == 0 && u.z.group > 1) return false;  // see prepare_at_once
  return serves_long(u.dtype, {u.z, u.sizes.causal}, of(device));
}

// Adding a block to dq takes about a tenth of the time of a pair of blocks: where queries are few,
// the blocks of keys that are under way queue up at the dq semaphores.
double cost_at_once(const Signature& s, const Device& device) {
  const Use u = use_of(s);
  const LongBlock block = long_block(u.dtype, {u.z, u.sizes.causal}, of(device));
  const double queue = .1 * std::min(u.z.s, block.keys_at_once) / std::max(1, u.z.t);
  return cost_of_blocks(s, device, {.48, .6}, block.queries, block.keys) * std::max(1.0, queue);
}

Program prepare_at_once(const Signature& s, const Tune&, Device& device) {
  const Use u = use_of(s);
  if (u.z.t == 0 || u.z.heads == 0) return prepare_plain(s, {}, device);
  const LongProgram program = long_program(u.dtype, {u.z, u.sizes.causal}, of(device));
  return {.workspace = std::max(u.workspace(), program.workspace),
          .run = [=](const Call& call) { program.run(params_of(u, call), call.workspace); }};
}

bool supports_head(const Signature& s, const Device& device) {
  return runs_at_once(s, device) && attention_sizes(s).group() == 1 && serves_head(use_of(s).z);
}

Program prepare_head(const Signature& s, const Tune&, Device& device) {
  const Use u = use_of(s);
  CudaDevice& d = of(device);
  return {.workspace = u.workspace(),
          .run = [=, &d](const Call& call) { run_head(u.dtype, params_of(u, call), d); }};
}

bool supports_gemms(const Signature& s, const Device& device) {
  const AttentionSizes z = attention_sizes(s);
  return has_tensor_cores(s, device, int64_t{1} << 14) && z.a == 1 && z.plain() && !z.packed &&
         !z.viewed && z.n > 0 && z.t > 0 && z.s < int64_t{1} << 20;
}

// A pair of a query and a key takes 26 bytes: scores and their gradients pass through memory in
// f32, what is made of them in 16 bits.
double cost_gemms(const Signature& s, const Device& device) {
  const AttentionSizes z = attention_sizes(s);
  Cost c = cost_of(s);
  c.bytes += 26 * static_cast<double>(z.n * z.t) * static_cast<double>(z.s);
  return roofline(c, s.in[0].dtype, device, {.18, .3});
}

Program prepare_gemms(const Signature& s, const Tune&, Device& device) {
  const Use u = use_of(s);
  CudaDevice& d = of(device);
  const GradGemms gemms = grad_gemms(u.z, u.dtype, device);
  const GradKernel preprocess = grad_kernels(u).preprocess;
  const int64_t stats_bytes = (u.workspace() + 255) / 256 * 256;
  return {.workspace = stats_bytes + gemms.workspace, .run = [=, &d](const Call& call) {
            const GradParams p = params_of(u, call);
            launch("attention_grad_preprocess", preprocess.run,
                   {.grid = blocks_for(u.z.heads * u.pitch, preprocess.rows), .block = kRowThreads},
                   p, d);
            gemms.run(p, static_cast<char*>(call.workspace) + stats_bytes);
          }};
}

}  // namespace

std::vector<Kernel> attention_grad() {
  return {{.op = "attention_grad",
           .name = "attention_grad_sm90_head",
           .supports = supports_head,
           .prepare = prepare_head,
           .cost = roofline<50, 70>},
          {.op = "attention_grad",
           .name = "attention_grad_sm90",
           .supports = supports_at_once,
           .prepare = prepare_at_once,
           .cost = cost_at_once,
           .cooperative = true},
          {.op = "attention_grad",
           .name = "attention_grad_tiles",
           .supports = supports_tiles,
           .prepare = prepare_tiles,
           .cost = cost_tiles},
          {.op = "attention_grad",
           .name = "attention_grad_gemms",
           .supports = supports_gemms,
           .prepare = prepare_gemms,
           .cost = cost_gemms},
          {.op = "attention_grad",
           .name = "attention_grad_plain",
           .supports = supports_plain,
           .prepare = prepare_plain,
           .cost = roofline<1, 10>,
           .note = note_plain}};
}

}  // namespace ebb::ops::cuda
