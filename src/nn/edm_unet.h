// The U-Net block of the EDM networks (Karras et al. 2022, arXiv:2206.00364, table 7): the union
// of the residual blocks of DDPM++, NCSN++ and ADM.
#pragma once

#include <optional>
#include <vector>

#include "nn/layers.h"

namespace ebb::nn {

enum class Resample : uint8_t { none, up, down };

// Half or twice the size with the separable filter `taps` (sum normalised to 1; up: gain 2 an
// axis). x [N,H,W,C]
Value resample(Value x, Resample how, const std::vector<double>& taps);
// Half the size without a border: the filter reads only what is there. x [N,H,W,C] ->
// [N,(H-taps)/2+1,...]
Value halve_inside(Value x, const std::vector<double>& taps);

// Options shared by all blocks of a network.
struct EdmStyle {
  double skip_scale = 1;       // of every sum with a skip
  double eps = 1e-5;           // of the norms
  bool adaptive_scale = true;  // the embedding scales and shifts the second norm; else it is added
  bool resample_proj = false;  // a 1x1 convolution on the skip of every block that resamples
  std::vector<double> taps = {1, 1};
  double dropout = 0;
  Init init = torch_init;            // of most layers
  Init init_zero = zero_init;        // of the last layer of a branch
  Init init_attention = torch_init;  // of qkv
  std::optional<ops::RandomKeys> random;
};

struct EdmBlock {
  int64_t out = 0;
  Resample resample = Resample::none;
  int64_t heads = 0;  // of the self-attention behind; 0: none
};

// min(32, C/4) groups.
Value edm_norm(const Params& p, Value x, double eps);
// x [N,H,W,C], emb [N,E] -> [N,H',W',out]
Value edm_block(const Params& p, Value x, Value emb, const EdmStyle& s, const EdmBlock& b);

}  // namespace ebb::nn
