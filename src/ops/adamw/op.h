// adamw: one step of Adam with decoupled weight decay (Kingma and Ba 2015; Loshchilov and Hutter
// 2019) and, where wanted, of an exponential moving average of the parameter, as one expression.
//
//   g' = clip g
//   m' = beta1 m + (1 - beta1) g'        v' = beta2 v + (1 - beta2) g'^2
//   p' = p (1 - lr weight_decay) - lr (m' / c1) / (sqrt(v' / c2) + eps)
//   ema' = ema + (1 - ema_decay) (p' - ema)
//
// c1 = 1 - beta1^t and c2 = 1 - beta2^t at step t = 1, 2, ... A clip that is not positive (see
// clip_scale) skips the step: everything stays as it is.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

struct AdamW {
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  void fields(auto&& f) {
    f("beta1", beta1);
    f("beta2", beta2);
    f("eps", eps);
    f("weight_decay", weight_decay);
  }
};

struct AdamWInputs {
  Value p, g, m, v;        // of one shape
  Value lr, c1, c2, clip;  // f32[]
  Value ema, ema_decay;    // of p's shape and f32[]; both or none
};

struct AdamWResults {
  Value p, m, v, ema;  // ema: none without AdamWInputs::ema
};

namespace def {
const OpDef& adamw();
}

AdamWResults adamw(const AdamWInputs& in, const AdamW& attrs);

// The average of a parameter that has become p, as other optimisers have it, too.
Scalar moved_average(const Scalar& ema, const Scalar& ema_decay, const Scalar& p);

}  // namespace ebb::ops
