// adamw: one step of Adam with decoupled weight decay (Kingma and Ba 2015; Loshchilov and Hutter
// 2019) of one parameter.
#include "ops/adamw/op.h"

#include "functions/function.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"

namespace ebb::functions::table {
namespace {

// numbers [4]: the learning rate, 1 - beta1^t, 1 - beta2^t, and the factor of the gradient.
std::vector<Value> build(const Use& u) {
  const auto number = [&](int64_t i) {
    return ops::reshape(ops::slice(u.in[4], 0, i, i + 1), Shape{});
  };
  const ops::AdamWResults r = ops::adamw({.p = u.in[0],
                                          .g = u.in[3],
                                          .m = u.in[1],
                                          .v = u.in[2],
                                          .lr = number(0),
                                          .c1 = number(1),
                                          .c2 = number(2),
                                          .clip = number(3)},
                                         u.as<ops::AdamW>());
  return {r.p, r.m, r.v};
}

}  // namespace

Function adamw() {
  Function f = define<ops::AdamW>("adamw", {"p", "m", "v", "grad", "numbers"},
                                  {"p_out", "m_out", "v_out"}, build);
  f.in_place = 3;
  return f;
}

}  // namespace ebb::functions::table
