// qk_rope: rotary position embeddings of queries and keys by the same tables.
#include "functions/rotation.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/slice/op.h"

namespace ebb::functions::table {
namespace {

struct QkRope {
  std::string style = "interleaved";
  void fields(auto&& f) { f("style", style); }
};

// Whether q and k [B,S,heads,D] differ in their numbers of heads alone: they are heads of one
// tensor, which is rotated at once.
bool are_heads_of_one(Value q, Value k) {
  Shape a = q.shape(), b = k.shape();
  if (q.dtype() != k.dtype() || a.rank() < 4 || a.rank() != b.rank()) return false;
  a[-2] = b[-2] = 1;
  return a == b;
}

std::vector<Value> build(const Use& u) {
  const Value q = u.in[0], k = u.in[1];
  const auto turned = [&](Value x) {
    return rotated(x, u.in[2], u.in[3], {.style = u.as<QkRope>().style});
  };
  if (!are_heads_of_one(q, k)) return {turned(q), turned(k)};
  const int64_t dim = q.shape().rank() - 2, heads = q.shape()[dim];
  const Value both = turned(ops::concat({q, k}, dim));
  return {ops::slice(both, dim, 0, heads), ops::slice(both, dim, heads, both.shape()[dim])};
}

}  // namespace

Function qk_rope() {
  return define<QkRope>("qk_rope", {"q", "k", "cos", "sin"}, {"q_out", "k_out"}, build);
}

}  // namespace ebb::functions::table
