// attention: softmax(scale q k^T + bias) v (Dao et al. 2022), heads of keys and values grouped or
// not; also the logarithms of the softmax's sums.
#include "ops/prim/attention/op.h"

#include "functions/function.h"

namespace ebb::functions::table {
namespace {

struct Attention {
  double scale = 0;  // 0: 1 / sqrt(D)
  bool causal = false;
  void fields(auto&& f) {
    f("scale", scale);
    f("causal", causal);
  }
};

struct AttentionUse {
  std::vector<Value> in;
  ops::Attention attrs;
};

AttentionUse use_of(const Use& u) {
  const auto& a = u.as<Attention>();
  AttentionUse out{{u.in[0], u.in[1], u.in[2]}, {.scale = a.scale, .causal = a.causal}};
  if (u.in[3]) {
    out.in.push_back(u.in[3]);
    out.attrs.bias = true;
  }
  return out;
}

std::vector<Value> build(const Use& u) {
  const AttentionUse a = use_of(u);
  return u.graph.add(ops::def::attention(), a.attrs, a.in);
}

// From the results, so that nothing of the forward pass is computed again.
std::vector<Value> gradient(const Use& u, std::span<const Value> results,
                            std::span<const Value> grads) {
  const AttentionUse a = use_of(u);
  Signature s{.op = &ops::def::attention(), .attrs = a.attrs};
  for (const Value& v : a.in) s.in.push_back(v.type());
  for (const Value& v : results) s.out.push_back(v.type());
  return s.op->vjp({u.graph, s, a.in, results, grads});
}

}  // namespace

Function attention() {
  Function f = define<Attention>("attention", {"q", "k", "v", "bias?"}, {"o", "lse"}, build);
  f.gradient = gradient;
  return f;
}

}  // namespace ebb::functions::table
