// The Inception-v3 network of published FID figures: that of the TensorFlow graph of 2015-12-05
// (Szegedy et al. 2015, https://arxiv.org/abs/1512.00567), with the tensors' names of pytorch-fid's
// `pt_inception-2015-12-05-6726825d.pth`. It differs from torchvision's Inception: averages leave
// out the padding, and the last block takes maxima where the others take averages.
#pragma once

#include <string>

#include "nn/params.h"
#include "train/features.h"

namespace ebb::train {

inline constexpr int64_t inception_width = 2048;

// images f32 [N,H,W,1 or 3] in [-1,1], resized to 299x299 (bilinear, without antialiasing) ->
// features f32 [N,2048], the means over space of the last block.
Value inception_features(const nn::Params& p, Value images);

// For images [H,W,C], with the weights of a safetensors file (docs/evaluation.md says how to make
// one). The classifier's last layer, `fc`, may be there. Throws Error for tensors that miss or have
// another shape.
FeatureNet load_inception(const std::string& path, const Shape& image, int64_t batch,
                          const Context& context);

}  // namespace ebb::train
