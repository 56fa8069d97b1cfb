// Block weights: strengths of a U-Net's blocks, as the web UI's extension "LoRA block weight" has
// them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ebb::adapters {

// 12 (LoRA, XL), 17 (LoRA, 1 and 2), 20 (XL) or 26 numbers (1 and 2): of the text encoders, of
// input blocks, of the middle block, of output blocks. Those that a short list leaves out are 0.
class BlockWeights {
 public:
  BlockWeights() = default;  // 1 for all
  // "1,0,0.5,..."; throws Error for another count and for what is no number.
  explicit BlockWeights(std::string_view text);
  double of_text() const { return weights_.empty() ? 1 : weights_[0]; }
  // Of a layer by the original's name, "input_blocks.4.1.proj_in"; 1 of those in no block.
  double of_layer(std::string_view layer) const;
  bool empty() const { return weights_.empty(); }

 private:
  std::vector<double> weights_;
};

}  // namespace ebb::adapters
