// Tensors of other programs, whose strides are any, as values of a graph.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace ebb::functions {

// A tensor in memory that some dense tensor would have: dims of it are permuted, cut at their ends
// or repeated (a stride of 0).
struct StorageView {
  Shape storage;                // of the dense tensor, which may end beyond the last element
  std::vector<int64_t> kept;    // of each of its dims
  std::vector<int64_t> dim_of;  // for each dim of the tensor, that of the storage; -1: none
  Shape shape;                  // of the tensor
  bool dense = false;           // it is the storage

  // None: elements overlap, or a stride is no multiple of the next smaller one. Strides count
  // elements.
  static std::optional<StorageView> of(std::span<const int64_t> sizes,
                                       std::span<const int64_t> strides);
  // The tensor; the storage is an input of the graph.
  Value input(Graph& g, std::string_view name, DType dtype) const;
};

}  // namespace ebb::functions
