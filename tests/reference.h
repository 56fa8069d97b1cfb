// A slow interpreter of graphs in double: what they mean, and the oracle of other tests.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "ir/op.h"

namespace ebb::test {

using RefInputs = std::map<std::string, RefArray, std::less<>>;  // by source name

// Every value of the graph, indexed by value number. Nothing is rounded to a dtype: integers are
// exact to 2^53. Throws Error on a missing or misshapen input.
// `after` may change every value that a primitive or expression has computed.
using AfterNode = std::function<void(RefArray&)>;
std::vector<RefArray> evaluate_reference(const Graph& g, const RefInputs& inputs,
                                         const AfterNode& after = {});
// The outputs of one use of an op (sig.out may be empty).
std::vector<RefArray> evaluate_reference(const Signature& sig, std::span<const RefArray> in,
                                         const AfterNode& after = {});

// The value of the output called `name`.
const RefArray& output_of(const Graph& g, const std::vector<RefArray>& values,
                          std::string_view name);

RefArray ref_array(const Tensor& t);  // host tensors of any dtype
RefArray ref_array(Shape shape, std::vector<double> v);

// `x` rounded to the nearest value of `dtype`.
double rounded(double x, DType dtype);

}  // namespace ebb::test
