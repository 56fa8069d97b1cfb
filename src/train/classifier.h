// The default classifier for evaluating samples: a small convolutional network, trained on the
// labelled data and cached in the user's cache folder. Its last hidden layer is the default feature
// space.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "base/seed.h"
#include "train/dataset.h"
#include "train/features.h"

namespace ebb::train {

struct ClassifierConfig {
  int64_t width = 32;  // channels of the first convolution
  int64_t features = 128;
  int64_t epochs = 3;
  int64_t min_steps = 200;  // more epochs of small sets
  int64_t batch = 128;
  double lr = 2e-3;
  Seed seed = 1;
  void fields(auto&& f) {
    f("width", width, "channels of the first convolution");
    f("features", features, "width of the feature space");
    f("epochs", epochs, "passes over the data");
    f("min_steps", min_steps, "more passes over small sets, until there are as many steps");
    f("batch", batch, "images per step");
    f("lr", lr, "learning rate at the start; it falls to 0");
    f("seed", seed, "of weights and order");
  }
};

// Both may throw.
struct ClassifierHooks {
  std::function<void(std::string_view line)> log;
  std::function<void()> between = {};  // called before every batch
};

// A new classifier. Throws Error for a data set without classes.
FeatureNet train_classifier(const Dataset& data, const ClassifierConfig& config,
                            const Context& context, const ClassifierHooks& progress);

// The number of rows of logits [N,K] whose maximum is at their label.
int64_t count_right(const Tensor& logits, std::span<const int64_t> labels);
// The fraction of images whose largest logit is their label's.
double class_accuracy(FeatureNet& net, const Dataset& data,
                      const std::function<void()>& between = {});

// The cached classifier of the data set at `path` (which `data` was opened from), or a new one that
// is then cached: in $XDG_CACHE_HOME/ebb, or ~/.cache/ebb. A cache that cannot be written is no
// error.
FeatureNet cached_classifier(const Dataset& data, const std::string& path, const Context& context,
                             const ClassifierHooks& progress);

}  // namespace ebb::train
