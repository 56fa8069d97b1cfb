// The folder of a run: who may write into it, and what in it is the run's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/temporary.h"

namespace ebb::train {

// The picture of a step that sample_every asks for.
std::string sample_file(const std::string& folder, int64_t step);
// Under whose temporary names a model is written for such a picture, and removed behind it.
std::string sample_model(const std::string& folder);
// The step of such a picture by its name alone; none for other files.
std::optional<int64_t> step_of_sample(std::string_view name);

// A lock held while a run writes into its folder; released with the process, however it ends.
using RunLock = Descriptor;

// Throws Error for a folder that files cannot be written to or that another run is writing into,
// for one that holds a run or a model unless `resume` or `overwrite`, and with `resume` for one
// that holds no run or a damaged config.json. Leaves it as it is.
void check_run_folder(const std::string& folder, bool resume, bool overwrite);
// Makes the folder; deletes what a killed process left half written and, with `overwrite`, the
// files of the run that was there (docs/checkpoints.md lists them): to be called when nothing can
// fail any more before the new one begins. Models without a state (half_checkpoints) get another
// name, and `say` a line for each whole file that is renamed or deleted. Throws Error where another
// run is writing.
RunLock begin_run_folder(const std::string& folder, bool overwrite,
                         const std::function<void(std::string_view)>& say);

}  // namespace ebb::train
