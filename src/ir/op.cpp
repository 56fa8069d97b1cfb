#include "ir/op.h"

#include "base/error.h"
#include "ir/expr_inputs.h"

namespace ebb {

std::string Signature::text() const {
  std::string out(op->name);
  for (size_t i = 0; i < in.size(); ++i) {
    out += i ? ',' : ' ';
    out += type_text(in[i]);
  }
  const std::string& a = attrs.text();
  if (!a.empty()) out.append(" ").append(a);
  if (!aligned) out += " unaligned";
  return out;
}

Expr expression_of(const Signature& sig) {
  require(sig.op->expr != nullptr, sig.op->name, ": is not pointwise  at ", sig.at);
  const auto inputs = static_cast<int64_t>(sig.in.size());
  return Expr(inputs, sig.op->expr(sig, inputs_as_scalars(inputs)));
}

Cost cost_of(const Signature& sig) {
  if (sig.op->cost) return sig.op->cost(sig);
  Cost c;
  for (const Type& t : sig.in) c.bytes += static_cast<double>(t.bytes());
  for (const Type& t : sig.out) c.bytes += static_cast<double>(t.bytes());
  if (sig.op->expr && !sig.out.empty()) {
    c.flops = expression_of(sig).flops() * static_cast<double>(sig.out[0].shape.numel());
  }
  return c;
}

namespace {

// f32 wins over the 16-bit floats, floats over integers; two different 16-bit floats give f32.
DType wider(DType a, DType b) {
  if (a == b) return a;
  if (is_float(a) != is_float(b)) return is_float(a) ? a : b;
  if (is_float(a)) return DType::f32;
  return size_of(a) > size_of(b) ? a : b;
}

}  // namespace

std::vector<Type> infer_pointwise(const Signature& sig, size_t results) {
  require(!sig.in.empty(), sig.op->name, ": needs an input  at ", sig.at);
  Type t = sig.in[0];
  for (const Type& i : sig.in) {
    t.shape = broadcast(t.shape, i.shape, sig.op->name);
    t.dtype = wider(t.dtype, i.dtype);
  }
  if (!is_float(t.dtype)) t.dtype = DType::f32;
  return std::vector<Type>(results, t);
}

}  // namespace ebb
