// config.json and run.json of a run's folder, which are written for readers.
#pragma once

#include <cstdint>
#include <string>

#include "core/dtype.h"
#include "train/checkpoint.h"

namespace ebb::train {

// What no setting says.
struct RunFacts {
  std::string device;
  DType dtype = DType::f32;             // of matrix work
  int64_t parameters = 0, trained = 0;  // of all networks, and those of them that are trained
  std::string data;
  int64_t images = 0;  // of the data, with those held out; 0: not counted
};
// Throws Error.
void write_run_files(const std::string& folder, const RunInfo& info, const RunFacts& facts);
// RunFacts::images of the run's last start; 0 where no run.json tells it.
int64_t images_of_run(const std::string& folder);

}  // namespace ebb::train
