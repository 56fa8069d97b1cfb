// group_affine_grad: from the sums of a group norm's backward pass over the pixels to what is left
// to do for each channel.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

struct GroupAffineGrad {
  int64_t groups = 1;
  int64_t pixels = 1;  // that the sums run over
  void fields(auto&& f) {
    f("groups", groups);
    f("pixels", pixels);
  }
};

namespace def {
// s1 = sum over the pixels of dy, s2 = of dy (x - mean), mean, rstd, all f32 [K...,C], gamma [C] or
// none -> slope, offset f32 [K...,C], dgamma, dbeta f32 [C], with
// dx = dy gamma rstd + x slope + offset.
// With u = gamma s1 and w = gamma s2 summed over a group and m its elements (pixels x channels),
// slope = -rstd^3 w / m and offset = -rstd u / m - mean slope (Wu & He 2018, differentiated).
const OpDef& group_affine_grad();
}  // namespace def

struct GroupAffineGradInputs {
  Value s1, s2, mean, rstd, gamma;  // gamma may be Value{}
};
struct GroupAffineGradResults {
  Value slope, offset, dgamma, dbeta;
};
GroupAffineGradResults group_affine_grad(const GroupAffineGradInputs& in,
                                         const GroupAffineGrad& attrs);
// [K...,C] to the sum of every group, f32 [K...,groups].
Value group_sums(Value v, int64_t groups);

}  // namespace ebb::ops
