// rope: rotary position embedding (Su et al. 2021) by tables of cosines and sines.
#include "functions/rotation.h"

namespace ebb::functions::table {
namespace {

struct Rope {
  EnumField<RotationStyle> style = RotationStyle::interleaved;
  void fields(auto&& f) { f("style", style); }
};

std::vector<Value> build(const Use& u) {
  return {rotated(u.in[0], u.in[1], u.in[2], {.style = u.as<Rope>().style})};
}

}  // namespace

Function rope() { return define<Rope>("rope", {"x", "cos", "sin"}, {"y"}, build); }

}  // namespace ebb::functions::table
