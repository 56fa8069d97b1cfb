// permute: y[i_dims[0], i_dims[1], ...] = x[i_0, i_1, ...]; output dim k is input dim dims[k].
#pragma once

#include "ir/op.h"

namespace ebb::ops {

struct Permute {
  std::vector<int64_t> dims;  // each of 0..rank-1 once
  void fields(auto&& f) { f("dims", dims); }
};

namespace def {
const OpDef& permute();
}

Value permute(Value x, std::vector<int64_t> dims);  // x itself if nothing moves

}  // namespace ebb::ops
