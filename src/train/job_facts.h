// What must be the same on all ranks, so that they train one network on one set of images.
#pragma once

#include <vector>

#include "ranks/agree.h"
#include "train/loop.h"

namespace ebb::train {

// Throws Error where a run goes on whose checkpoint this rank does not have.
std::vector<ranks::Fact> facts_of(const TrainJob& job, const Context& context);

}  // namespace ebb::train
