// What the functions of norms share: statistics along the last dim, weights, modulation, and where
// the libraries that they replace round.
#pragma once

#include "base/enum_field.h"
#include "functions/function.h"
#include "ir/result_dtypes.h"

namespace ebb::functions {

enum class NormKind : uint8_t { rms, layer };
constexpr ValueNames<2> value_names(NormKind) { return {"kind", {"rms", "layer"}}; }

// Values between operations in f32, and where they are rounded:
//   once       the result alone, to x's dtype
//   diffusers  RMSNorm and modulation of diffusers: x rstd to the weight's dtype if that is of 16
//              bits, then each product and sum to its own result's dtype; with a weight in f32 the
//              result is f32
//   llama      LlamaRMSNorm of transformers: x rstd to x's dtype, then the product with the weight
enum class Rounding : uint8_t { once, diffusers, llama };
constexpr ValueNames<3> value_names(Rounding) {
  return {"rounding", {"once", "diffusers", "llama"}};
}

struct NormOperands {
  Value x;             // [...,C]
  Value weight, bias;  // [C], or none
  // [C], or of x's rank with sizes of x's or 1; [B,C] for x [B,...,C] is per sample. Or none.
  Value scale, shift;
};

struct NormRule {
  NormKind kind = NormKind::rms;
  double eps = 1e-6;
  double offset = 0;  // added to the weight: 1 for weights around 0
  Rounding rounding = Rounding::once;
  ResultDType dtype = {};  // unspecified: as `rounding` implies
};

// A rule as attributes of a function; one without a kind is an RMS norm.
template <bool has_kind, bool has_offset>
struct NormAttributes {
  EnumField<NormKind> kind = has_kind ? NormKind::layer : NormKind::rms;
  double eps = 1e-6, offset = 0;
  EnumField<Rounding> rounding = Rounding::once;
  ResultDType dtype = {};
  void fields(auto&& f) {
    if constexpr (has_kind) f("kind", kind);
    f("eps", eps);
    if constexpr (has_offset) f("offset", offset);
    f("rounding", rounding);
    f("dtype", dtype);
  }
  NormRule rule() const { return {kind, eps, offset, rounding, dtype}; }
};

// y = (x - mean) rstd (offset + weight) + bias, then y (1 + scale) + shift. Mean 0 for rms (Zhang
// and Sennrich 2019; Ba et al. 2016; modulation: Peebles and Xie 2023).
Value norm(const NormOperands& in, const NormRule& rule);

// A modulation, as one of x's rank.
Value along(Value modulation, const Shape& x, std::string_view name);
// The wider of two dtypes, as torch promotes them: f32 over bf16 and f16, f32 for these two.
DType promoted(DType a, DType b);

}  // namespace ebb::functions
