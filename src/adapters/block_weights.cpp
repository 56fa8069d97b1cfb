#include "adapters/block_weights.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "base/fields.h"
#include "base/names.h"
#include "base/strength.h"
#include "base/text.h"

namespace ebb::adapters {
namespace {

// The blocks that a list of numbers is of, behind that of the text encoders. Attention, which LoRAs
// of kohya's first kind change alone, is in the blocks of the short lists only.
struct Blocks {
  std::vector<int> inputs, outputs;
  size_t count() const { return 2 + inputs.size() + outputs.size(); }
};

const std::array<Blocks, 4>& known_blocks() {
  static const std::array<Blocks, 4> all = {
      Blocks{{4, 5, 7, 8}, {0, 1, 2, 3, 4, 5}},
      Blocks{{1, 2, 4, 5, 7, 8}, {3, 4, 5, 6, 7, 8, 9, 10, 11}},
      Blocks{{0, 1, 2, 3, 4, 5, 6, 7, 8}, {0, 1, 2, 3, 4, 5, 6, 7, 8}},
      Blocks{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}};
  return all;
}

double number(std::string_view text, std::string_view all) {
  const auto v = as_number(text);
  require(v && is_strength(*v), "lora: block weights must be numbers from ", -most_strength, " to ",
          most_strength, " (found '", text, "')  lbw=", all);
  return *v;
}

}  // namespace

BlockWeights::BlockWeights(std::string_view text) {
  for (const std::string_view part : parted(text, ",")) weights_.push_back(number(part, text));
  require(std::ranges::any_of(known_blocks(),
                              [&](const Blocks& b) { return b.count() == weights_.size(); }),
          "lora: block weights are 12, 17, 20 or 26 numbers (found ", weights_.size(),
          ")  lbw=", text);
}

double BlockWeights::of_layer(std::string_view layer) const {
  if (weights_.empty()) return 1;
  const Blocks& b = *std::ranges::find(known_blocks(), weights_.size(), &Blocks::count);
  const auto in = [&](std::string_view side, const std::vector<int>& blocks, size_t first) {
    const int block = std::atoi(std::string(layer.substr(side.size())).c_str());
    const auto it = std::ranges::find(blocks, block);
    return it == blocks.end() ? 0.0 : weights_[first + static_cast<size_t>(it - blocks.begin())];
  };
  if (layer.starts_with("input_blocks.")) return in("input_blocks.", b.inputs, 1);
  if (layer.starts_with("middle_block.")) return weights_[1 + b.inputs.size()];
  if (layer.starts_with("output_blocks."))
    return in("output_blocks.", b.outputs, 2 + b.inputs.size());
  return 1;
}

}  // namespace ebb::adapters
