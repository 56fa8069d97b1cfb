// Quality of samples: Fréchet and kernel distance to held-out images, and class accuracy.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/pipeline.h"
#include "train/dataset.h"
#include "train/kernel_distance.h"

namespace ebb {

struct EvaluateOptions {
  std::string data;      // path of the images, with or without labels
  std::string features;  // as open_features() takes it; "": the classifier's
  int64_t n = 1000;      // samples
  GenerateOptions generate;
};

struct Quality {
  int64_t n = 0;
  std::string features;  // whose: classifier, quarter turns, inception, or a file
  double frechet_distance = 0;
  train::KernelDistance kernel_distance;
  // Of the samples; of conditional models, where the classifier is good enough.
  std::optional<double> class_accuracy;
  std::optional<double> classifier_accuracy;  // on the held-out images, where one is used
  int64_t held_out = 0;                       // images
  bool held_out_seen = false;  // they are training images: the data has no test split
  bool conditional = false;    // the model has the classes of the data
  bool inception = false;      // the distances are FID and KID
  bool turns = false;  // the classifier tells quarter turns apart, since the data has no classes
  std::vector<std::string> doubts;  // why the figures may mean little
  double seconds = 0;
};

struct EvaluateHooks {
  std::function<void(std::string_view)> log;
  std::function<bool()> stop = {};  // true ends the work, at the next batch, with Cancelled
};

// On the first of the devices; samples on all of them. Held-out images are the set's test split; a
// set without one gives every tenth image, which training may have seen (the log says so). Samples
// have the classes 0, 1, ... in turn. Throws Error.
Quality evaluate(const LoadedModel& model, const EvaluateOptions& options,
                 const std::vector<Context>& devices, const EvaluateHooks& hooks);
// Of so many devices, those that there is a batch of samples for. Throws Error.
size_t used_devices(const LoadedModel& model, const EvaluateOptions& options, size_t devices);

}  // namespace ebb
