// attention: softmax(scale q k^T) v for every sample and head, without the T x S matrix in memory
// (Dao et al. 2022, FlashAttention).
#pragma once

#include "ir/op.h"

namespace ebb::ops {

// q [N,T,A,K], k and v [N,S,A,K] of one dtype -> o [N,T,A,K] and lse f32 [N,A,T], the logarithm of
// the sum over S of exp(scale q k^T).
struct Attention {
  double scale = 0;  // 0: 1 / sqrt(K)
  void fields(auto&& f) { f("scale", scale); }
};

namespace def {
const OpDef& attention();
}

struct AttentionSizes {
  int64_t n = 0, t = 0, s = 0, a = 0, k = 0;
  double scale = 0;
};
// Throws Error unless the first three inputs are q, k and v.
AttentionSizes attention_sizes(const Signature& s);

Value attention(Value q, Value k, Value v, const Attention& attrs = {});  // o

}  // namespace ebb::ops
