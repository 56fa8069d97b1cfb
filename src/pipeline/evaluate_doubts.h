// Why figures of samples may mean little: a sentence each, with the numbers.
#pragma once

#include <string>
#include <vector>

#include "core/shape.h"

namespace ebb {

// What the figures of an evaluation stand on.
struct Evidence {
  Shape model, data;  // images [H,W,C] of the model, and of the data before they are fitted
  int64_t samples = 0, held_out = 0;
  int64_t features = 0;      // width of the feature space
  double accuracy = -1;      // of the classifier on held-out images; below 0: none is used
  int64_t classes = 0;       // that it tells apart
  bool conditional = false;  // a share of the samples is told
  bool own_features = true;  // distances are in the classifier's features
  bool inception = false;    // they are FID and KID
};

// Whether the classifier is good enough for the share of samples that it takes for their class: it
// must make less than half the mistakes of guessing.
bool tells_classes(const Evidence& e);

// Empty where nothing is wrong. docs/evaluation.md says where the limits come from.
std::vector<std::string> doubts(const Evidence& e);

}  // namespace ebb
