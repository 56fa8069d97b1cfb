// reduce: y_k = scale * sum (or the maximum) over `dims` of f_k(x_0, x_1, ...); dims stay with
// size 1.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

#include "base/enum_field.h"
#include "base/optional_text.h"
#include "ir/op.h"
#include "ir/result_dtypes.h"

namespace ebb::ops {

enum class ReduceKind : uint8_t { sum, max };
constexpr ValueNames<2> value_names(ReduceKind) { return {"reduce: kind", {"sum", "max"}}; }

struct Reduce {
  Expr expr;                  // what is reduced; the inputs broadcast as in pointwise
  std::vector<int64_t> dims;  // of the broadcast shape
  EnumField<ReduceKind> kind = ReduceKind::sum;
  double scale = 1;            // of a sum
  std::vector<int64_t> shape;  // takes part in the broadcast
  // Of the results, which are computed in f32; unspecified: f32.
  OptionalValue<ResultDTypes> dtypes = {};
  void fields(auto&& f) {
    f("expr", expr);
    f("dims", dims);
    f("kind", kind);
    f("scale", scale);
    f("shape", shape);
    f("dtypes", dtypes);
  }
};

namespace def {
const OpDef& reduce();
}

std::vector<DType> result_dtypes(const Reduce& r);
std::vector<Value> reduce(Graph& g, const Reduce& attrs, std::span<const Value> in);
// f32, reduced dims of size 1. Negative dims count from the end.
Value sum(Value x, std::vector<int64_t> dims);
Value mean(Value x, std::vector<int64_t> dims);
Value amax(Value x, std::vector<int64_t> dims);  // has no gradient
// The sum over `dims` of an expression of broadcast inputs: sum_of({a, b}, {-1}, [](auto x) {
// return x[0] * x[1]; }).
Value sum_of(std::initializer_list<Value> in, std::vector<int64_t> dims,
             const std::function<Scalar(std::span<const Scalar>)>& f);
// Undoes a broadcast: sums `x` down to `shape`.
Value sum_to(Value x, const Shape& shape);
// The dims in which a tensor of shape `from` repeats when it is read at `to`, for equal ranks.
std::vector<int64_t> broadcast_dims(const Shape& from, const Shape& to);

}  // namespace ebb::ops
