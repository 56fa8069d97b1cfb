// group_norm: the norm of each sample's groups of channels (Wu and He 2018) and an activation; x is
// channels last.
#include "ops/group_norm/op.h"

#include "base/error.h"
#include "functions/function.h"
#include "ir/activations.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::functions::table {
namespace {

struct GroupNorm {
  int64_t groups = 32;
  double eps = 1e-5;
  std::string act = "none";
  void fields(auto&& f) {
    f("groups", groups);
    f("eps", eps);
    f("act", act);
  }
};

std::vector<Value> build(const Use& u) {
  const auto& a = u.as<GroupNorm>();
  const Value y = ops::group_norm(u.in[0], u.in[1], u.in[2], {a.groups, a.eps});
  if (a.act == "none") return {y};
  return {ops::map(
      {y}, [&](auto v) { return activation(a.act, v[0]); }, y.dtype())};
}

}  // namespace

Function group_norm() {
  return define<GroupNorm>("group_norm", {"x", "weight?", "bias?"}, {"y"}, build);
}

}  // namespace ebb::functions::table
