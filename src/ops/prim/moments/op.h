// moments: mean and biased variance, the statistics of every normalisation.
#pragma once

#include <utility>

#include "ir/op.h"

namespace ebb::ops {

// x [K..., S..., C]: K are the `axis` leading dims. Over S and each of the `groups` equal parts of
// C: mean and var, f32 [K..., 1..., groups]. Group norm of NHWC: axis 1; layer norm: axis rank-1.
struct Moments {
  int64_t axis = 1;
  int64_t groups = 1;  // must divide C
  void fields(auto&& f) {
    f("axis", axis);
    f("groups", groups);
  }
};

struct MeanVar {
  Value mean, var;
};

namespace def {
const OpDef& moments();
}

MeanVar moments(Value x, const Moments& attrs);
// [.., groups] to [.., channels]: every group's value repeated for its channels.
Value expand_groups(Value v, int64_t channels);

}  // namespace ebb::ops
