// linear_gated: a linear layer to twice the columns, and the gated product of its halves (GEGLU,
// SwiGLU: Shazeer 2020).
#include "functions/gated.h"

namespace ebb::functions::table {
namespace {

struct LinearGated {
  std::string act = "gelu";
  EnumField<Gate> gate = Gate::second;
  void fields(auto&& f) {
    f("act", act);
    f("gate", gate);
  }
};

std::vector<Value> build(const Use& u) {
  const auto& a = u.as<LinearGated>();
  return {functions::gated(product(u.in[0], u.in[1], u.in[2]), {a.act, a.gate})};
}

}  // namespace

Function linear_gated() {
  return define<LinearGated>("linear_gated", {"x", "weight", "bias?"}, {"y"}, build);
}

}  // namespace ebb::functions::table
