// What a checkpoint does not tell of its model, for people.
#pragma once

#include <string>
#include <vector>

#include "pipeline/load_model.h"

namespace ebb::cli {

// A line for each thing that is missing or guessed.
std::vector<std::string> guesses_of(const LoadedModel& model);

}  // namespace ebb::cli
