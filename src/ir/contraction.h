// Contraction: all that a pass knows of an op that adds up products and may compute more of them
// before they are written, as matmuls and convolutions do.
#pragma once

#include <optional>

#include "ir/epilogue.h"
#include "ir/op.h"

namespace ebb {

// Of one use. Its inputs: x and w; pairs of further such; the operands of the epilogue.
struct Contraction {
  Epilogue epilogue;
  int64_t products = 1;  // pairs of x and w, whose products are one sum
  // x [..., K] times w [N, K]: the product may be a further one of a contraction that takes them.
  bool linear = false;
  // The attributes for another epilogue, dtype of the result and number of products; none where the
  // op has no such use.
  std::optional<Attrs> (*with)(const Signature&, const Epilogue&, DType result,
                               int64_t products) = nullptr;

  size_t first_operand() const { return 2 * static_cast<size_t>(products); }
};

}  // namespace ebb
