// What a run left in its folder, read for its report.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/metrics.h"

namespace ebb {

// A number of each step that has it.
struct Curve {
  std::vector<double> step, value;
};

// An evaluation: what `ebb eval` found.
struct Measured {
  int64_t step = 0;
  std::string title;  // of its column
  nlohmann::ordered_json values;
};

// One setting of config.json.
struct Setting {
  std::string section, name, value, usual;  // usual: the default, for the model that is trained
  bool differs = false;
};

struct RunRecord {
  std::string name;                     // of the folder
  int64_t steps = 0;                    // done
  double seconds = 0;                   // of training
  std::map<std::string, Curve> curves;  // loss, smoothed, lr, grad_norm, ..., validation/loss
  std::vector<Measured> measured;       // by step
  std::vector<std::string> warnings;    // of the last evaluation
  std::vector<std::string> faults;      // what of the folder could not be read and is left out
  train::RecentLoss recent_loss;        // of the last steps
  nlohmann::ordered_json facts;         // run.json; null: none
  std::vector<Setting> settings;

  const Curve& curve(const std::string& key) const;  // empty if there is none
};

// Reads metrics.jsonl and, where they are there, run.json, config.json, eval.json and
// eval_tenth.json. Lines and files that a crash cut short are passed over. Throws Error if
// `folder` has no metrics.
RunRecord read_run(const std::string& folder);

}  // namespace ebb
