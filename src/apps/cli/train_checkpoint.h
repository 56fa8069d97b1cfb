// `ebb train` of a checkpoint of text to image.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ebb::cli {

// Whether the words ask for that: --model names a file or folder, or --resume a run of it.
bool trains_checkpoint(const std::vector<std::string>& words);
// Throws Error for flags of that alone, where `app` has none of them: a network from scratch is
// trained.
void check_no_checkpoint_flags(const CLI::App& app, const std::vector<std::string>& words);
// As Command::bind.
std::function<int()> bind_checkpoint_training(CLI::App& app, const std::vector<std::string>& words);

}  // namespace ebb::cli
