#include "pipeline/frozen_weights.h"

#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "passes/precision/quantise_states.h"

namespace ebb {

Graph frozen_in_8_bits(const Graph& g, const Graph& loss,
                       const std::function<void(std::string_view)>& say) {
  std::set<std::string> quantised;
  std::vector<std::string> others;
  int64_t elements = 0;
  for (const std::string& name : weights_of_products(loss)) {
    const Source* s = g.find_source(name);
    if (s->kind != Source::Kind::state) continue;
    const Shape& shape = g.type(s->value).shape;
    if (!Quantised::takes(shape)) {
      others.push_back(str(name, ' ', shape));
      continue;
    }
    quantised.insert(name);
    elements += shape.numel();
  }
  require(!quantised.empty(), "frozen_weights: no matrix that stays has rows of a multiple of ",
          Quantised::block, " numbers (--frozen-weights q8)");
  if (say) {
    say(str("keeps ", elements, " frozen weights in 8 bits, of ", quantised.size(), " matrices"));
    if (!others.empty())
      say(str("matrices with rows of no multiple of ", Quantised::block,
              " numbers stay as they are: ", others.size(), ", the first ", others[0]));
  }
  return quantise_states(g, quantised);
}

}  // namespace ebb
