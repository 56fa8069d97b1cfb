// Batches in the device's memory: copied there while a step runs on the batch before.
#pragma once

#include <set>
#include <string>

#include "runtime/context.h"
#include "train/loop.h"

namespace ebb::train {

// What is copied ahead: the inputs of a job's losses, but for small ones (is_small_input).
struct BatchesAhead {
  std::set<std::string, std::less<>> inputs;
  int64_t bytes = 0;    // of them in a batch, at most; 0: nothing is copied
  int64_t batches = 2;  // one that the run holds, and one that is being copied

  int64_t device_bytes() const { return bytes * batches; }
};
// Nothing where the device's memory is the host's, or where batches are made by the thread that
// runs the steps.
BatchesAhead batches_ahead_of(const TrainJob& job, const Device& device);

// The batches of `next` with those inputs in the device's memory, which is taken at once. A thread
// asks `next` for a batch and copies it beside the work on the one before; what `next` throws is
// thrown in place of its batch. A batch's memory is another's as soon as no tensor shares it: the
// run that read it must be over by then. Throws Error.
NextBatch batches_ahead(NextBatch next, const Context& context, BatchesAhead ahead);

}  // namespace ebb::train
