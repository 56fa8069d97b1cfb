// gated: a (act b) of the halves of x's columns, or of two tensors.
#include "functions/gated.h"

namespace ebb::functions::table {
namespace {

struct Gated {
  std::string act = "silu";
  EnumField<Gate> gate = Gate::second;
  void fields(auto&& f) {
    f("act", act);
    f("gate", gate);
  }
};

std::vector<Value> build(const Use& u) {
  const auto& a = u.as<Gated>();
  const GateRule rule{a.act, a.gate};
  if (!u.in[1]) return {functions::gated(u.in[0], rule)};
  return {functions::gated(u.in[0], u.in[1], rule)};
}

}  // namespace

Function gated() { return define<Gated>("gated", {"x", "other?"}, {"y"}, build); }

}  // namespace ebb::functions::table
