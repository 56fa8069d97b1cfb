// Layers shared by networks. Each creates its parameters under `p`, with the names of the published
// checkpoints (weight, bias).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "nn/init.h"
#include "nn/network.h"
#include "nn/ops.h"
#include "nn/params.h"

namespace ebb::nn {

// ---- linear and convolution ----------------------------------------------------------------

struct Linear {
  bool bias = true;
  Init init = torch_init;
  // trailing dims of size 1 after [O,I] in files: 1-D convolutions 1, 1x1 convolutions 2
  int64_t file_dims = 0;
};
// x [...,I] -> [...,O]
Value linear(const Params& p, Value x, int64_t out, const Linear& a = {});

struct Conv {
  int64_t kernel = 3;
  int64_t stride = 1;
  int64_t pad = -1;         // every side; -1: kernel / 2, the size stays
  int64_t pad_before = -1;  // above and to the left; -1: as pad
  bool bias = true;
  Init init = torch_init;
};
// x [N,H,W,I] -> [N,H',W',O]. A 1x1 convolution is a linear.
Value conv(const Params& p, Value x, int64_t out, const Conv& a = {});

// Twice the size, without overlap: kernel 2, stride 2. x [N,H,W,I] -> [N,2H,2W,O]
Value conv_up2(const Params& p, Value x, int64_t out, const Init& init = torch_init);

// Squares of k x k pixels to channels, which count c, row, column, and back:
// [N,H,W,C] -> [N,H/k,W/k,C k k]; [N,H,W,C k k] -> [N,H k,W k,C]
Value pixel_unshuffle(Value x, int64_t k);
Value pixel_shuffle(Value x, int64_t k);

// ---- norms ---------------------------------------------------------------------------------

Value group_norm(const Params& p, Value x, const ops::GroupNorm& a);
Value layer_norm(const Params& p, Value x, const ops::LayerNorm& a);

// ---- conditioning --------------------------------------------------------------------------

// linear(second, silu(linear(first, x)))
struct Mlp {
  Params first, second;
  int64_t width = 0;
  Init init = torch_init;
};
Value silu_mlp(const Mlp& a, Value x);

// The class of every sample as f32 [N]; -1 for all if the inputs have none.
Value class_ids(const NetworkInputs& in);
// f32 [N,classes]: 1 at the class; all 0 where the id (f32 [N]) is outside of [0, classes).
Value one_hot(Value ids, int64_t classes);
// The labels of augmentation [N,size]; zeros if the inputs have none.
Value augmentation(const NetworkInputs& in, int64_t size);
// One row of the table `weight` [rows,width] a sample; ids (f32 [N]) outside of [0, rows) give
// zeros, or the last row if `null_row`.
struct ClassTable {
  int64_t rows = 0, width = 0;
  bool null_row = false;
  Init init{Init::Kind::normal, 1};
};
Value class_embedding(const Params& p, Value ids, const ClassTable& a);

// v [N,C] as [N,1,..,1,C] of the rank of x.
Value per_sample(Value v, Value x);
// Dropout if there are random keys and p > 0; `at` names the stream.
Value dropout(const Params& at, Value x, double p, const std::optional<ops::RandomKeys>& random);

// ---- attention -----------------------------------------------------------------------------

// How files lay out the rows of a fused q, k, v weight [3C,C], slowest first. Here all of q's come
// first, whatever the order: rows are put so when a file is read (WeightSpec::qkv_interleave).
enum class QkvOrder : uint8_t {
  qkv_head_channel,  // DiT, and ADM with use_new_attention_order
  head_qkv_channel,  // ADM
  head_channel_qkv,  // EDM
};
struct SelfAttention {
  int64_t heads = 1;  // must divide C
  QkvOrder order = QkvOrder::qkv_head_channel;
  Linear qkv = {};
  bool causal = false;  // a position attends to itself and to those before it only
  // Of q, k and v where files have three tensors of each kind, [C,C] and [C], and no order.
  std::array<std::string_view, 3> names = {};
};
// Every position of x [N,...,C] attends to all the others; the output projection is the caller's.
// `p` holds weight [3C,C] and bias [3C], or by names those of q, k and v: these are one matrix in
// the graph, so that x is read once.
Value self_attention(const Params& p, Value x, const SelfAttention& a);

// Of a cross-attention of its own with the same queries: its result times `strength` is added.
struct KeysValues {
  Value keys, values;  // [N,S,width]
  Value strength;      // [N,1]
  Value mask = {};     // [N,T], a factor at each position of x; none: 1
};
struct CrossAttention {
  int64_t heads = 1;  // must divide the width
  int64_t width = 0;  // of q, k and v; 0: C
  Linear qkv = {.bias = false};
  Value bias = {};         // [N|1,heads|1,T|1,S], added to the scores; none if empty
  Value key_lengths = {};  // i64 [N]: sample n has only its first key_lengths[n] states
  std::vector<KeysValues> more = {};
};
// Every position of x [N,...,C] attends to the states of context [N,S,D] -> [N,...,width]; the
// output projection is the caller's. `p` holds to_q, to_k and to_v, with weight [width,C] or
// [width,D] and perhaps bias [width].
Value cross_attention(const Params& p, Value x, Value context, const CrossAttention& a);

}  // namespace ebb::nn
