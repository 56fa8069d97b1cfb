#include "passes/lower.h"

#include "base/error.h"
#include "ops/prim/pointwise/op.h"

namespace ebb {
namespace {

// A pointwise op as the primitive `pointwise`, with types and shape explicit.
ops::Pointwise as_pointwise(const Signature& s) {
  std::vector<DType> dtypes;
  for (const Type& t : s.out) dtypes.push_back(t.dtype);
  return {expression_of(s), s.out[0].shape.sizes(), dtypes};
}

// Whether the op's results are its operands, as those of stop_gradient behind gradients.
bool is_identity(const Signature& s) {
  const Expr e = expression_of(s);
  if (s.in != s.out || e.results().size() != s.in.size()) return false;
  for (size_t i = 0; i < s.in.size(); ++i) {
    const auto& code = e.code()[static_cast<size_t>(e.results()[i])];
    if (code.op != ScalarOp::input || code.value != static_cast<double>(i)) return false;
  }
  return true;
}

// The reason if no kernel can support a signature because of its size.
std::string hint_of_size(const Signature& s) {
  constexpr int64_t most = int64_t{1} << 31;
  int64_t largest = 0;
  for (const Type& t : s.in) largest = std::max(largest, t.shape.numel());
  for (const Type& t : s.out) largest = std::max(largest, t.shape.numel());
  if (largest < most) return "";
  return str("; kernels support fewer than ", most, " elements and this has ", largest,
             ": a smaller --batch or more --accumulation has fewer");
}

std::vector<Value> simpler(Graph& to, const Signature& s, std::span<const Value> in) {
  if (s.op->expr && !s.op->reference) {
    if (is_identity(s)) return {in.begin(), in.end()};
    return to.add(ops::def::pointwise(), as_pointwise(s), in);
  }
  require(s.op->decompose != nullptr, s.op->name, ": this device has no kernel for it",
          hint_of_size(s), "  ", s.text(), "  at ", s.at);
  return s.op->decompose(to, s, in);
}

}  // namespace

Graph lower(const Graph& g, const std::function<bool(const Signature&)>& keep) {
  Graph now = g;
  for (int round = 0; round < 32; ++round) {
    Rewriter rw(now);
    rw.copy_sources();
    bool changed = false;
    for (const Node& n : now.nodes()) {
      const Signature s = now.signature(n);
      if (keep(s)) {
        rw.copy(n);
        continue;
      }
      const AtScope scope(rw.to(), n.at);
      const std::vector<Value> out = simpler(rw.to(), s, rw.map(n.in));
      for (size_t i = 0; i < n.out.size(); ++i) {
        require(out[i].type() == s.out[i], s.op->name, ": decomposes to another type (",
                out[i].type(), " for ", s.out[i], ")  at ", s.at);
        rw.set(n.out[i], out[i]);
      }
      changed = true;
    }
    rw.copy_ends();
    now = rw.take();
    if (!changed) {
      verify(now, "lower");
      return now;
    }
  }
  fail("lower: the decompositions do not end (32 rounds)");
}

}  // namespace ebb
