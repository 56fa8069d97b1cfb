// GEMM and convolution on the tensor cores of sm_90a (implicit GEMM): the problem and its schedule.
//
// All are D[m, n] = sum over k of A[m, k] B[n, k], with 16-bit operands and f32 accumulators.
// Convolutions read their images as the rows of a matrix that is never stored (implicit GEMM).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "backend/cuda/device/device.h"
#include "backend/cuda/kit/activation.h"
#include "ir/kernel.h"

namespace ebb::cuda::gemm {

// Where the operands come from. n: rows of k; t: rows of m or n, transposed on the way.
enum class Form : uint8_t {
  nt,     // A [m, k], B [n, k]
  nn,     // A [m, k], B [k, n]
  tn,     // A [k, m], B [k, n]
  tt,     // A [k, m], B [n, k]
  fprop,  // A: images by pixel and tap, B: weights [n, tap, k]
  dgrad,  // A: images of gradients by pixel and tap, B: weights [k, rotated tap, n]
  wgrad,  // A: gradients [k, m], B: images by pixel k and tap, n
  gated,  // as nt; tiles are of two halves of B's rows, see Post::gate
  // As dgrad of a convolution with a stride, Images::up: the batch are the phases of the result's
  // pixels, each a convolution of stride 1 under every up-th tap.
  phases,
};
constexpr bool a_transposed(Form f) { return f == Form::tn || f == Form::tt || f == Form::wgrad; }
constexpr bool b_transposed(Form f) {
  return f == Form::nn || f == Form::tn || f == Form::dgrad || f == Form::wgrad ||
         f == Form::phases;
}
constexpr bool a_images(Form f) {
  return f == Form::fprop || f == Form::dgrad || f == Form::phases;
}
constexpr bool b_images(Form f) { return f == Form::wgrad; }
// Whether it has kernels that take further products (Problem::more_k).
constexpr bool sums_products(Form f) {
  return f == Form::nt || f == Form::nn || f == Form::gated || f == Form::fprop;
}
// Whether its kernels have the row-sum (bias-gradient) epilogue: A summed over k.
constexpr bool sums_rows(Form f) { return f == Form::tn || f == Form::wgrad; }

// Images [n, h, w, c] under a filter of kh x kw taps, at out_h x out_w places.
struct Images {
  int64_t n = 1, h = 1, w = 1, c = 1, out_h = 1, out_w = 1;
  int kh = 1, kw = 1, stride = 1;
  int top = 0, left = 0, bottom = 0, right = 0;  // bottom, right: see TmaImages
  // Form::phases: all sizes above are of one phase. Pixel up i + a of the result is in phase a,
  // under taps (a + up_top) mod up, that + up, ... of the filter; columns likewise.
  int up = 1, up_top = 0, up_left = 0;
};

// The epilogue on an accumulator z after the bias: scale it and add the residual; apply the
// activation to z rounded to the result's type; multiply z by the activation's gradient at an
// operand, rounded to that type; of Form::gated, whose columns are two halves, multiply one half by
// the activation of the other, both rounded so.
enum class Post : uint8_t { add, activate, activation_grad, gate };

struct Problem {
  Form form = Form::nt;
  DType type = DType::bf16, out = DType::bf16;  // of the operands; of the result: f32 or type
  bool bias = false;                            // added to each row
  bool residual = false;                        // Post::add: added to each element
  DType bias_type = DType::f32, residual_type = DType::f32;
  bool row_sums = false;      // A's rows, summed over k, are a second result: f32 [m]; of one GEMM
  int64_t residual_rows = 1;  // of the result that share a row of the residual
  Post post = Post::add;
  Activation activation;
  bool gate_first = false;  // gate: the activation is of the first half
  bool keep = false;        // activate, gate: z is a second result
  // Post::add: rows of the result that share a row of factors of z, of the operands' type and
  // `scale_pitch` elements apart; 0: there are none.
  int64_t scale_rows = 0, scale_pitch = 0;
  int64_t m = 0, n = 0, k = 0, batch = 1;   // of one GEMM; k of a convolution: of one tap
  bool repeat_a = false, repeat_b = false;  // one matrix for the whole batch
  Images images;                            // convolutions
  // k of up to two more products, of Operands::more, that the same accumulators take; of one GEMM.
  int64_t more_k[2] = {};
  int64_t taps() const { return images.kh * images.kw; }            // of a phase
  int64_t half() const { return form == Form::gated ? n / 2 : 0; }  // where the other begins
};

// The schedule. The two CTAs of a cluster can load the operand that they have in common once, by
// TMA multicast.
enum class Multicast : uint8_t { none = 0, b = 1, a = 2 };
struct Choice {
  int tile_m = 128, tile_n = 128;
  int split_k = 1;  // splits of k, of the tiles after the first `data_parallel`
  Multicast multicast = Multicast::none;
  int data_parallel = 0;  // tiles, or pairs of them
  // Two consumer warpgroups on tiles of their own: one runs its epilogue while the other issues
  // MMAs.
  bool ping_pong = false;
  // Cluster split-K: the splits of a tile, at most 8, are the CTAs of a cluster, which reduces them
  // through distributed shared memory (DSMEM) without a second pass. No multicast, no ping-pong.
  bool cluster_split_k = false;
  // One CTA per SM, with as many stages as fit there, for tiles that are made for two CTAs per
  // SM.
  bool one_cta_per_sm = false;
};

// The sizes of tiles that kernels of a form exist for.
struct TileSize {
  int m = 0, n = 0, ctas_per_sm = 1;
  int stages = 4;  // blocks of 64 values of k in flight
  bool ping_pong = false;
  bool can_cluster_split_k = false;  // Choice::cluster_split_k is possible
  bool loads_source = true;          // operands of the result's shape
  bool adds_row_residual = true;     // residuals that are rows for images
  bool scales = false;               // Problem::scale_rows
  int one_cta_stages = 4;            // see Choice::one_cta_per_sm
};

// Tiles, or pairs of them, along m and n. wgrad pads each tap to blocks of 64 channels.
struct Groups {
  int64_t m = 0, n = 0;
};
Groups groups(const Problem& p, const Choice& c);

// Bytes of workspace: split-K partials, and those of A's row sums.
int64_t workspace_bytes(const Problem& p, const Choice& c);

// Whether TMA can read the operands.
bool can_load(const Problem& p);
// Whether the kernels can add the residual and sum the rows.
bool can_finish(const Problem& p);

// Addresses on the device: all but those of the bias and of factors are multiples of 16.
struct Operands {
  const void *a = nullptr, *b = nullptr, *bias = nullptr, *residual = nullptr;
  const void* grad_at = nullptr;  // Post::activation_grad: of the result's shape and type
  const void* scale = nullptr;    // the first row of factors
  struct Pair {
    const void *a = nullptr, *b = nullptr;  // [m, k], and as Operands::b; fprop: [n, k]
  };
  Pair more[2];  // Problem::more_k
  void *out = nullptr, *row_sums = nullptr, *workspace = nullptr;
  void* kept = nullptr;  // z, the second result
};

// The kernels of one form and operand type. run: throws Error if there is no such tile.
struct Kernels {
  std::vector<TileSize> tiles;
  void (*run)(const Problem&, const Choice&, const Operands&, CudaDevice&) = nullptr;
};

// The candidate schedules, best guess first; never empty.
std::vector<Choice> choices(const Problem& p, const std::vector<TileSize>& tiles, int sm_count);

// The choice that a Tune of tunes() names; without values, the best guess. Throws Error for one
// that the kernels cannot compute `p` by.
Choice choice_of(const Problem& p, const std::vector<TileSize>& tiles, const Tune& tune,
                 int sm_count);

// ---- for the kernels of ops --------------------------------------------------------------------

// Capability, dtypes and sizes that run() takes.
bool supports(const Problem& p, const CudaDevice& device);
std::vector<Tune> tunes(const Problem& p, const Kernels& k, const CudaDevice& device);

struct Prepared {
  int64_t workspace = 0;
  std::function<void(const Operands&)> run;
};
Prepared prepare(const Problem& p, const Kernels& k, const Tune& tune, CudaDevice& device);

}  // namespace ebb::cuda::gemm
