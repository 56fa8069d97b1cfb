// qk_rope: rotary position embeddings of queries and keys by the same tables.
#include "functions/rotation.h"

namespace ebb::functions::table {
namespace {

struct QkRope {
  EnumField<RotationStyle> style = RotationStyle::interleaved;
  void fields(auto&& f) { f("style", style); }
};

std::vector<Value> build(const Use& u) {
  const auto turned = [&](Value x) {
    return rotated(x, u.in[2], u.in[3], {.style = u.as<QkRope>().style});
  };
  return {turned(u.in[0]), turned(u.in[1])};
}

}  // namespace

Function qk_rope() {
  return define<QkRope>("qk_rope", {"q", "k", "cos", "sin"}, {"q_out", "k_out"}, build);
}

}  // namespace ebb::functions::table
