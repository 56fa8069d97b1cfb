// qk_norm_rope: RMS norms of queries and keys and their rotation, before attention.
#include "base/error.h"
#include "functions/norms.h"
#include "functions/rotation.h"
#include "ops/prim/reshape/op.h"

namespace ebb::functions::table {
namespace {

struct QkNormRope {
  double eps = 1e-6;
  EnumField<RotationStyle> style = RotationStyle::interleaved;
  bool across_heads = false;  // the norms are over all heads together
  EnumField<Rounding> rounding = Rounding::once;
  void fields(auto&& f) {
    f("eps", eps);
    f("style", style);
    f("across_heads", across_heads);
    f("rounding", rounding);
  }
};

// x [B,S,...,D], of which the norm is over the last dim, or over all behind S.
Value normed(Value x, Value weight, const QkNormRope& a) {
  const NormRule rule{.eps = a.eps, .rounding = a.rounding};
  if (!a.across_heads) return norm({.x = x, .weight = weight}, rule);
  const Shape shape = x.shape();
  const int64_t rows = shape[0] * shape[1];
  const int64_t channels = rows == 0 ? 0 : shape.numel() / rows;
  return ops::reshape(
      norm({.x = ops::reshape(x, {shape[0], shape[1], channels}), .weight = weight}, rule), shape);
}

std::vector<Value> build(const Use& u) {
  const auto& a = u.as<QkNormRope>();
  const Value cos = u.in[4], sin = u.in[5];
  require(static_cast<bool>(cos) == static_cast<bool>(sin), "qk_norm_rope: cos needs sin");
  const auto one = [&](Value x, Value weight) {
    require(x.shape().rank() >= 3, "qk_norm_rope: q and k must be [B,S,...,D] (got ", x.type(),
            ")");
    const Value y = normed(x, weight, a);
    return cos ? rotated(y, cos, sin, {.style = a.style}) : y;
  };
  return {one(u.in[0], u.in[2]), one(u.in[1], u.in[3])};
}

}  // namespace

Function qk_norm_rope() {
  return define<QkNormRope>("qk_norm_rope", {"q", "k", "weight_q?", "weight_k?", "cos?", "sin?"},
                            {"q_out", "k_out"}, build);
}

}  // namespace ebb::functions::table
