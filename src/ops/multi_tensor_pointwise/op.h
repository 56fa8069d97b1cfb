// multi_tensor_pointwise: one expression on many lists of tensors, each of its own shape: the
// optimiser over all weights, or their casts, as one piece of work.
#pragma once

#include <string>
#include <vector>

#include "ir/op.h"

namespace ebb::ops {

// Inputs: those of part 0, of part 1, ...; outputs likewise. Within a part every input has the
// shape of the part or is a single number; parts agree in dtypes and in which inputs are numbers.
struct MultiTensorPointwise {
  Expr expr;
  int64_t lists = 1;
  std::string dtypes;  // of a part's outputs, as Pointwise has them
  void fields(auto&& f) {
    f("expr", static_cast<TextValue&>(expr));
    f("lists", lists);
    f("dtypes", dtypes);
  }
};

namespace def {
const OpDef& multi_tensor_pointwise();
}

// The signature of one part, as a use of pointwise.
Signature signature_of_list(const Signature& s, int64_t part);

}  // namespace ebb::ops
