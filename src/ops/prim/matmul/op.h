// matmul: c = a b on the last two dims, batched, and an epilogue; perhaps with the sums of a.
#pragma once

#include "ir/epilogue.h"
#include "ir/op.h"
#include "ir/result_dtypes.h"

namespace ebb::ops {

// a [..., M, K], b [..., K, N], then operands of the epilogue, as bias [N] -> [..., M, N]. Leading
// dims are equal, or one of a and b has rank 2 and serves the whole batch. a and b have one dtype,
// or a is f32 and b, a weight as its file has it, narrower; operands may have others. Behind a and
// b pairs stored as they are, with a K of their own, whose products are added to theirs.
struct Matmul {
  bool trans_a = false;    // a is stored [..., K, M]
  bool trans_b = false;    // b is stored [..., N, K]
  ResultDType dtype = {};  // unspecified: as a
  // A last result, f32 [M]: the sums of a over K. With a = dy [K, M] stored, c is the gradient of
  // weights and this that of a bias. Of two matrices.
  bool row_sums = false;
  int64_t products = 1;  // with the further pairs; of more than one there are no sums
  Epilogue epilogue = {};
  void fields(auto&& f) {
    f("trans_a", trans_a);
    f("trans_b", trans_b);
    f("dtype", dtype);
    f("row_sums", row_sums);
    f("products", products);
    f("epilogue", epilogue);
  }
};

namespace def {
const OpDef& matmul();
}

// The sizes of one use; a and b are [M, K] and [K, N] whatever their storage.
struct MatmulSizes {
  Shape lead;  // of the result
  int64_t m = 0, n = 0, k = 0;
  bool repeat_a = false, repeat_b = false;  // rank 2 against a batch
};
MatmulSizes matmul_sizes(const Signature& s);  // K of the first pair
// The uses of one further pair each.
std::vector<Signature> added_products_of_matmul(const Signature& s);

Value matmul(Value a, Value b, const Matmul& attrs = {});
// x [..., I], w [O, I], bias [O] or none -> [..., O].
Value linear(Value x, Value w, Value bias = {});

}  // namespace ebb::ops
