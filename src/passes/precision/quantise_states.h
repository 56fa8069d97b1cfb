// quantise_states: weights that stay as they are while others are trained, in 8 bits (Dettmers et
// al. 2023, arXiv:2305.14314, section 3, has them in 4).
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "core/tensor.h"
#include "ir/graph.h"

namespace ebb {

// A matrix or filter in blocks of 32 numbers of a row, as GGUF's q8_0 has them: x = d (code - 128),
// with d = max |x| / 127 for each block. 8.5 bits a number.
struct Quantised {
  static constexpr int64_t block = 32;
  Tensor codes;   // u8 [out, blocks, 32]
  Tensor scales;  // f16 [out, blocks, 1]

  // Rows are whole blocks, and a product would read them so.
  static bool takes(const Shape& weight);
  // Throws Error for a weight with numbers of which the scale would be beyond f16.
  static Quantised of(const std::string& name, const Tensor& weight);
  Tensor restored(const Shape& shape) const;  // f32
};
// The sources that have them in place of the state of this name.
std::string codes_of(std::string_view state);
std::string scales_of(std::string_view state);

// Params and states of rank 2 and more that nothing reads but contractions, as the weights of their
// products, perhaps as a part of a concatenation or in another shape.
std::set<std::string> weights_of_products(const Graph& g);

// These f32 states, which nothing updates, become codes and scales, and what reads them reads
// d (code - 128). Gradients flow through that to activations and to changes of the weights. On a
// forward graph; names of weights that Quantised does not take, or that are no such states, are an
// Error. What is restored lives for as long as one reader needs it: passes/schedule/near_readers.h.
Graph quantise_states(const Graph& g, const std::set<std::string>& names);

}  // namespace ebb
