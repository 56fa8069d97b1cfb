// attention: softmax(scale q k^T) v for every sample and head, without the T x S matrix in memory
// (Dao et al. 2022, FlashAttention).
#pragma once

#include "ir/op.h"

namespace ebb::ops {

// q [N,T,A,K], k and v [N,S,A,K] of one dtype -> o [N,T,A,K] and lse f32 [N,A,T], the logarithm of
// the sum over S of exp(scale q k^T).
struct Attention {
  double scale = 0;     // 0: 1 / sqrt(K)
  bool packed = false;  // one input [N,T,3,A,K] holds q, k and v, as one product makes them
  void fields(auto&& f) {
    f("scale", scale);
    f("packed", packed);
  }
};

namespace def {
const OpDef& attention();
}

struct AttentionSizes {
  int64_t n = 0, t = 0, s = 0, a = 0, k = 0;
  double scale = 0;
  bool packed = false;
  // Elements from row to row of q, k and v, and of o.
  int64_t step() const { return (packed ? 3 : 1) * a * k; }
  int64_t out_step() const { return a * k; }
  // How many inputs hold q, k and v.
  size_t operands() const { return packed ? 1 : 3; }
};
// Throws Error unless the first inputs are q, k and v.
AttentionSizes attention_sizes(const Signature& s);

std::vector<Value> parts_of(Value qkv);  // [N,T,3,A,K] -> three of [N,T,A,K]

// o; scale 0: 1 / sqrt(K).
Value attention(Value q, Value k, Value v, double scale = 0);
Value packed_attention(Value qkv, double scale = 0);  // of [N,T,3,A,K]

}  // namespace ebb::ops
