// Quality of samples: Frechet distance to held-out images and class accuracy.
#pragma once

#include <functional>
#include <string>

#include "pipeline/pipeline.h"
#include "train/dataset.h"

namespace ebb {

struct EvaluateOptions {
  std::string data;      // path of the images, with or without labels
  std::string features;  // a network file (train/features.h); "": the classifier's
  int64_t n = 1000;      // samples
  GenerateOptions generate;
};

struct Quality {
  int64_t n = 0;
  double frechet_distance = 0;
  double class_accuracy = 0;       // of the samples; only of conditional models
  double classifier_accuracy = 0;  // of the classifier, on the held-out images
  int64_t held_out = 0;            // images
  bool held_out_seen = false;      // they are training images: the data has no test split
  bool conditional = false;
  bool turns = false;               // the classifier predicts rotations: the data has no classes
  std::vector<std::string> doubts;  // why the figures may mean little
  double seconds = 0;
};

struct EvaluateHooks {
  std::function<void(std::string_view)> log;
  std::function<bool()> stop = {};  // true ends the work, at the next batch, with Cancelled
};

// Held-out images are the set's test split; a set without one gives every tenth image, which
// training may have seen (the log says so). Samples have the classes 0, 1, ... in turn. Throws
// Error.
Quality evaluate(const LoadedModel& model, const EvaluateOptions& options, const Context& context,
                 const EvaluateHooks& hooks);

}  // namespace ebb
