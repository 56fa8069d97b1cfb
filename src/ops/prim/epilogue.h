// The epilogue of contractions (ir/contraction.h): what they compute of their products before these
// are rounded. docs/epilogues.md says who makes it.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ir/contraction.h"
#include "ir/kernel.h"

namespace ebb::ops {

// A view of an operand.
struct EpilogueView {
  enum class Kind : uint8_t {
    column,   // [C]
    row,      // [N,1,...,1,C]: one for each image
    element,  // of the result's shape but for its columns
  };
  size_t input = 0;  // of the node
  Kind kind = Kind::element;
  int64_t rows = 1;    // of the result that share a row of it
  int64_t column = 0;  // the first that is read
  int64_t parts = 1;   // inputs of the expression
};
// Of a use whose products have this shape. Throws Error in the name of its op.
std::vector<EpilogueView> epilogue_views(const Signature& s, const Shape& products);

// infer: the results. Throws Error where the operands or the expression do not fit.
std::vector<Type> epilogue_results(const Signature& s, const Shape& products, DType dtype);
// The epilogue as an expression, also of a sum.
Expr epilogue_expression(const Signature& s, const Shape& products);
// reference: the results, of the products.
void compute_epilogue(const Signature& s, const RefArray& products, std::span<const RefArray> in,
                      std::span<RefArray> out);
// decompose: the results, of one product in f32 after the other. `more`: the uses of one further
// product each (Contraction::products), in the order of their pairs of inputs.
std::vector<Value> product_after_product(Graph& g, const Signature& s,
                                         std::span<const Signature> more,
                                         std::span<const Value> in);
// cost, without that of the products.
Cost epilogue_cost(const Signature& s, const Shape& products);

// Adds the further products: their values, and their cost.
void add_products(std::span<const Signature> more, std::span<const RefArray> in,
                  RefArray& products);
void add_cost_of_products(std::span<const Signature> more, Cost& c);

// [N,S...,C] to [N,1,...,1,C].
Shape row_for_each_image(Shape products);
// Whether the expression is the sum of all its inputs.
bool is_sum(const Expr& e);
// Whether it is the product of two inputs.
bool is_product(const Expr& e);
// Whether a sum, which needs no expression, takes these operands beside products of this width: a
// bias [C] and a residual at most, all as wide.
bool sum_takes(std::span<const Type> operands, int64_t width);

// The operands of a sum. They may be of any float dtypes.
struct Summands {
  std::optional<size_t> bias, residual;  // inputs: [C], and a row for each image or elements
  int64_t rows = 1;                      // of the result that share a row of the residual
};
// Of a use whose epilogue is a sum and whose output types are known.
Summands summands_of(const Signature& s);
// Whether the use is such a sum, of one product.
bool is_sum_of_one_product(const Signature& s);
// Whether operands and result of such a sum have this dtype; the bias may have any.
bool is_sum_in(const Signature& s, DType dtype);

// Where a run's bias or residual is, or null.
inline const void* address_of(const std::optional<size_t>& input, const Call& c) {
  return input ? c.in[*input] : nullptr;
}

// decompose of a plain sum: without its last operand, in f32, and the sum with that; without
// operands there is no simpler use.
std::vector<Value> without_last_operand(Graph& g, const Signature& s, const Attrs& in_f32,
                                        std::span<const Value> in);
// vjp: the gradient of the residual, for that of the result.
Value residual_gradient(Value residual, Value dy);

}  // namespace ebb::ops
