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
  DType dtype = DType::f32;  // of matrix work
  int64_t parameters = 0;
  std::string data;
};
// Throws Error.
void write_run_files(const std::string& folder, const RunInfo& info, const RunFacts& facts);

}  // namespace ebb::train
