// embedding_grad: the gradient of a table, dtable[r,:] = sum of dy[i,:] over the i with ids[i] = r.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

struct EmbeddingGrad {
  int64_t rows = 0;  // of the table
  void fields(auto&& f) { f("rows", rows); }
};

namespace def {
const OpDef& embedding_grad();
}

// dy [...,d], ids i64[...] -> f32 [rows,d].
Value embedding_grad(Value dy, Value ids, int64_t rows);

}  // namespace ebb::ops
