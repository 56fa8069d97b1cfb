// WeightSpec: properties of a parameter other than its shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/shape.h"

namespace ebb::nn {

// How a parameter is initialised, stored in files and trained.
struct WeightSpec {
  std::string init = "zeros";  // zeros | ones | normal | uniform | sin_cos_2d
  double scale = 1;            // standard deviation (normal) or bound (uniform)
  Shape file_shape;            // in checkpoint files; empty: as here
  bool channels_last = false;  // file is [O,I,KH,KW], here [O,KH,KW,I]
  // groups of interleaved q, k, v rows: file [groups,3,rows,..], here [3,groups,rows,..]
  int64_t qkv_interleave = 1;
  bool decay = true;  // weight decay applies
};

// A param or state of a network.
struct Weight {
  std::string name;
  Shape shape;  // as the network has it
  WeightSpec spec;
  bool trained = true;
};

// Those of a network, in the order in which it made them.
using Weights = std::vector<Weight>;

}  // namespace ebb::nn
