// attention: softmax(scale q k^T) v for every sample and head, without the T x S matrix in memory
// (Dao et al. 2022, FlashAttention).
#pragma once

#include <algorithm>

#include "ir/op.h"
#include "ops/prim/attention/views.h"

namespace ebb::ops {

// q [N,T,A,K], k and v [N,S,H,K] of one dtype -> o [N,T,A,K] and lse f32 [N,A,T], the logarithm of
// the sum of exp(scale q k^T + bias) over the keys that a query attends to. A fully masked query
// has o = 0 and lse = 0. H divides A: query head a reads head a / (A / H) of k and v (Ainslie et
// al. 2023, grouped-query attention; H = 1 is multi-query attention).
struct Attention {
  double scale = 0;     // 0: 1 / sqrt(K)
  bool packed = false;  // one input [N,T,3,A,K] holds q, k and v, as one GEMM makes them
  // Query t attends to the keys s <= t + (S - T): the mask is aligned to the last query and key;
  // with T = S a query attends to itself and to earlier positions.
  bool causal = false;
  // An input [N,A,T,S] of floats of any dtype follows, of which N, A and T may be 1: it is added to
  // the scores. -infinity masks a key; finite values below -1e30 count as -1e30.
  bool bias = false;
  // An input i64 [N] follows: sample n has only its first key_lengths[n] keys (padded prompts).
  bool key_lengths = false;
  // Operands (q, k, v; of the gradient also o and do) and results that are views of their tensors,
  // as elide_copies makes them: any inputs that hold them. `packed` has such views of its own.
  HeadViews views = {}, result_views = {};
  void fields(auto&& f) {
    f("scale", scale);
    f("packed", packed);
    f("causal", causal);
    f("bias", bias);
    f("key_lengths", key_lengths);
    f("views", views);
    f("result_views", result_views);
  }
};

namespace def {
const OpDef& attention();
}

std::vector<Example> attention_examples();

struct AttentionSizes {
  int64_t n = 0, t = 0, s = 0, a = 0, k = 0;
  int64_t key_heads = 0;  // heads of k and v; divides a
  double scale = 0;
  bool packed = false, causal = false, bias = false, key_lengths = false;
  bool viewed = false;  // by attributes
  // Where operands and results lie; from dout on those of the gradient.
  struct Heads {
    HeadView q, k, v, o, dout, dq, dk, dv;
  } at = {};
  // Query heads that share a head of k and v: head i of N * A reads head i / group() of N * H.
  int64_t group() const { return key_heads > 0 ? a / key_heads : 1; }
  // How many inputs hold q, k and v; where those that follow them are, and how many there are.
  size_t tensors() const { return packed ? 1 : 3; }
  size_t bias_at() const { return tensors(); }
  size_t key_lengths_at() const { return tensors() + (bias ? 1 : 0); }
  size_t operands() const { return key_lengths_at() + (key_lengths ? 1 : 0); }
  // No mask and no bias.
  bool plain() const { return !causal && !bias && !key_lengths; }
  // Query t attends to the keys below this (of those that its sample has).
  int64_t key_limit(int64_t query) const {
    return causal ? std::clamp<int64_t>(query + 1 + s - t, 0, s) : s;
  }
  int64_t pairs() const;  // unmasked pairs of a query and a key, per head
  // Of a tensor as q and o are, and as k and v are, that is no view.
  HeadView queries() const { return {0, t * a * k, a * k, k}; }
  HeadView keys() const { return {0, s * key_heads * k, key_heads * k, k}; }
};
// Throws Error unless the first inputs are q, k and v, and what the attributes say follows.
AttentionSizes attention_sizes(const Signature& s);
// The operands of attention or its gradient, which the inputs have. Throws Error where a view does
// not lie in its input.
std::vector<Type> operand_types(const Signature& s);
// The view of result `i` and its tensor's shape; a result without one is `whole`.
struct ResultView {
  HeadView view;
  Shape tensor;
};
ResultView result_view(const Signature& s, size_t i, const Shape& whole);
// The attributes with these views; none where columns do not lie side by side, or results overlap.
std::optional<Attrs> viewed_attention(const Signature& s, const UseViews& views);

// Elements of a bias [N|1,A|1,T|1,S] from sample to sample, head to head and query to query; 0
// where it is the same for all.
struct BiasStrides {
  int64_t n = 0, a = 0, t = 0;
};
BiasStrides bias_strides(const Shape& bias);

// For references: adds the bias to the scores of a query of a head, one per key, and sets masked
// ones to -infinity. `in`: the op's inputs.
struct QueryIndex {
  int64_t n = 0, a = 0, t = 0;
};
void mask_scores(const AttentionSizes& z, std::span<const RefArray> in, const QueryIndex& at,
                 std::span<double> scores);

std::vector<Value> split_qkv(Value qkv);  // [N,T,3,A,K] -> three of [N,T,A,K]
// [N,S,H,K] -> [N,S,H*group,K]: a copy with every head `group` times in a row; x itself for 1.
Value repeat_heads(Value x, int64_t group);

struct AttentionOptions {
  double scale = 0;  // 0: 1 / sqrt(K)
  bool causal = false;
  Value bias = {};         // [N|1,A|1,T|1,S]
  Value key_lengths = {};  // i64 [N]
};
// o.
Value attention(Value q, Value k, Value v, const AttentionOptions& options = {});
Value packed_attention(Value qkv, const AttentionOptions& options = {});  // of [N,T,3,A,K]

}  // namespace ebb::ops
