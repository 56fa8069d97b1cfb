// The model in the box: the checkpoint that comes with the program (docs/model-in-the-box.md).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ebb {

// Where it is looked for: share/ebb beside the program's bin/ as installed, and in the source
// folder of the build.
std::vector<std::filesystem::path> box_places();
// The first of them that is there; none.
std::optional<std::string> find_model_in_the_box(
    const std::vector<std::filesystem::path>& places = box_places());
// The same. Throws Error where there is none.
std::string model_in_the_box(const std::vector<std::filesystem::path>& places = box_places());

}  // namespace ebb
