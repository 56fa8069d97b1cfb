// multi_tensor_pointwise: one expression on many lists of tensors, each of its own shape, in one
// launch: the optimiser over all weights, or their casts.
#pragma once

#include <string>
#include <vector>

#include "ir/op.h"

namespace ebb::ops {

// Inputs: those of list 0, of list 1, ...; outputs likewise. Within a list every input has the
// shape of the list or is a single number; lists agree in dtypes and in which inputs are numbers.
struct MultiTensorPointwise {
  Expr expr;
  int64_t lists = 1;
  std::string dtypes;  // of a list's outputs, as in Pointwise
  void fields(auto&& f) {
    f("expr", static_cast<TextValue&>(expr));
    f("lists", lists);
    f("dtypes", dtypes);
  }
};

namespace def {
const OpDef& multi_tensor_pointwise();
}

// The signature of one list, as a use of pointwise.
Signature signature_of_list(const Signature& s, int64_t list);

}  // namespace ebb::ops
