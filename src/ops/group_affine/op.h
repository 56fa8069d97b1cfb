// group_affine: what a group norm does to a channel, from the statistics of its group.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

struct GroupAffine {
  int64_t channels = 1;  // a multiple of the groups
  double eps = 1e-5;
  void fields(auto&& f) {
    f("channels", channels);
    f("eps", eps);
  }
};

namespace def {
// mean, var [K...,G], gamma [C] or none, beta [C] or none
// -> scale, shift, mean, rstd f32 [K...,C]: the norm is x * scale + shift.
const OpDef& group_affine();
}  // namespace def

struct GroupAffineResults {
  Value scale, shift, mean, rstd;
};
// gamma and beta may be Value{}; beta needs gamma.
GroupAffineResults group_affine(Value mean, Value var, Value gamma, Value beta,
                                const GroupAffine& attrs);

}  // namespace ebb::ops
