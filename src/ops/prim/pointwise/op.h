// pointwise: y_k[i] = f_k(x_0[i], x_1[i], ...), the one primitive behind every elementwise op.
#pragma once

#include <span>
#include <vector>

#include "ir/op.h"
#include "ir/result_dtypes.h"

namespace ebb::ops {

struct Pointwise {
  Expr expr;                   // one input a tensor, one result an output
  std::vector<int64_t> shape;  // takes part in the broadcast; [] adds nothing
  ResultDTypes dtypes = {};    // of the results; unspecified: the widest input's
  void fields(auto&& f) {
    f("expr", expr);
    f("shape", shape);
    f("dtypes", dtypes);
  }
};

namespace def {
const OpDef& pointwise();
}

// Of uses that differ in their sizes alone, whose operands are whole tensors or numbers: the op
// that they become, and its definition, are in ops/loops.
extern const Together pointwise_together;

// Applies `f` to the inputs, which broadcast against each other and `shape`.
std::vector<Value> pointwise(Graph& g, const Pointwise& attrs, std::span<const Value> in);

// One result from an expression: map({a, b}, [](auto x) { return x[0] * x[1]; }).
using Expression = std::vector<Scalar> (*)(std::span<const Scalar>);
Value map(std::initializer_list<Value> in, const std::function<Scalar(std::span<const Scalar>)>& f,
          ResultDType dtype = {});

Value cast(Value x, DType dtype);  // x itself if it has the dtype
Value broadcast_to(Value x,
                   const Shape& shape);  // a copy with repeats; x itself if it has the shape
Value constant(Graph& g, double value, const Shape& shape, DType dtype = DType::f32);

}  // namespace ebb::ops
