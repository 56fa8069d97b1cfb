// AdamW (Kingma and Ba 2015; Loshchilov and Hutter 2019): src/ops/adamw/op.h has the formula.
#include "ops/adamw/op.h"

#include "train/optimizer.h"

namespace ebb::train::optimizers {
namespace {

Updated update(const UpdateInputs& in) {
  const ops::AdamWResults out =
      ops::adamw({.p = in.p,
                  .g = in.g,
                  .m = in.states[0],
                  .v = in.states[1],
                  .lr = in.lr,
                  .c1 = in.numbers[0],
                  .c2 = in.numbers[1],
                  .clip = in.clip,
                  .ema = in.ema,
                  .ema_decay = in.ema_decay},
                 {in.settings.beta1, in.settings.beta2, in.settings.eps, in.settings.weight_decay});
  return {out.p, {out.m, out.v}, out.ema};
}

}  // namespace

const Optimizer& adamw() {
  static const Optimizer o{.name = "adamw",
                           .help = "Adam with decoupled weight decay",
                           .reads = {"beta1", "beta2", "eps"},
                           .beta2 = 0.999,
                           .states = {{"m."}, {"v."}},
                           .numbers = bias_corrections(),
                           .update = update};
  return o;
}

}  // namespace ebb::train::optimizers
