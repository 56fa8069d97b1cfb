#include "pipeline/model_in_the_box.h"

#include <utility>

#include "base/error.h"

namespace ebb {

namespace fs = std::filesystem;

std::vector<fs::path> box_places() {
  const fs::path file = fs::path("share") / "ebb" / "box.safetensors";
  std::vector<fs::path> out;
  std::error_code unknown;  // where there is no /proc
  const fs::path program = fs::read_symlink("/proc/self/exe", unknown);
  if (!unknown) out.push_back(program.parent_path().parent_path() / file);
  const fs::path source = fs::path(EBB_SOURCE_FOLDER) / file;
  if (out.empty() || out[0] != source) out.push_back(source);
  return out;
}

std::optional<std::string> find_model_in_the_box(const std::vector<fs::path>& places) {
  for (const fs::path& place : places) {
    std::error_code error;
    if (fs::is_regular_file(place, error)) return place.string();
  }
  return {};
}

std::string model_in_the_box(const std::vector<fs::path>& places) {
  if (auto found = find_model_in_the_box(places)) return std::move(*found);
  std::string looked;
  for (const fs::path& place : places) looked += "  " + place.string();
  fail(
      "generate: --model FILE must name a checkpoint: the model that comes with ebb is in none of ",
      places.size(), " places", looked);
}

}  // namespace ebb
