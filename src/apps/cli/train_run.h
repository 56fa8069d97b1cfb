// What `ebb train` does once it knows what to train, whatever that is.
#pragma once

#include "runtime/context.h"
#include "train/loop.h"

namespace ebb::cli {

// Trains, writes the run's report, and with `json` prints what came out (once, if several ranks
// train). Returns the exit code. Throws Error.
int run_training(train::TrainJob job, const Context& context, bool json);

}  // namespace ebb::cli
