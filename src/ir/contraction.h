// Contraction: all that a pass knows of an op that adds up products and may compute more of them
// before they are written, as matmuls and convolutions do.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ir/epilogue.h"
#include "ir/op.h"

namespace ebb {

// Of one use. Its inputs: x and w; pairs of further such; the operands of the epilogue.
struct Contraction {
  Epilogue epilogue;
  int64_t products = 1;  // pairs of x and w, whose products are one sum
  // x [..., K] times w [N, K]: it may be a further product of contractions that take such.
  bool linear = false;
  bool by_columns = false;  // x [..., K] times w [K, N]: only of others by columns
  // The attributes for another epilogue, dtype of the result and number of products; none where the
  // op has no such use.
  std::optional<Attrs> (*with)(const Signature&, const Epilogue&, DType result,
                               int64_t products) = nullptr;

  // Of windows of images [N,H,W,C], its first input: the zeros around them at the top, left, bottom
  // and right, and the attributes for others. No padding: it has no windows.
  std::vector<int64_t> padding = {};
  Attrs (*with_padding)(const Signature&, const std::vector<int64_t>& padding) = nullptr;

  // One use in place of two: it reads the first input of a producer of x, has other weights, made
  // of w, and all other inputs as this one.
  struct Folded {
    Signature use;
    std::function<Value(Value w)> weights;
  };
  // Of this use and the producer of its x; none: these two stay two. Null: it folds no op.
  std::optional<Folded> (*fold)(const Signature&, const Signature& producer) = nullptr;

  size_t first_operand() const { return 2 * static_cast<size_t>(products); }
};

}  // namespace ebb
