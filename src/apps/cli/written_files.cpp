#include "apps/cli/written_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "pipeline/noise_parameters.h"

namespace ebb::cli {

std::vector<WrittenFile> in_order(std::vector<WrittenFile> files) {
  std::ranges::sort(files, {}, [](const WrittenFile& f) { return f.images.at(0); });
  return files;
}

std::string place_of(const std::vector<WrittenFile>& files, const std::string& out) {
  if (files.empty()) return out;
  if (files.size() == 1) return files[0].file;
  const auto number = [](const WrittenFile& f) {
    return std::stoll(std::filesystem::path(f.file).stem().string());
  };
  if (number(files.back()) - number(files.front()) + 1 == std::ssize(files))
    return files.front().file + " to " + files.back().file;
  std::string all = files.front().file;
  for (size_t i = 1; i < files.size(); ++i) all += ", " + files[i].file;
  return all;
}

nlohmann::ordered_json json_of(const std::vector<WrittenFile>& files, int64_t first_image,
                               const ResolvedRequest& request) {
  using Json = nlohmann::ordered_json;
  Json out = Json::array();
  for (const WrittenFile& f : files) {
    Json images = Json::array();
    for (const int64_t i : f.images)
      images.push_back({{"image", first_image + i},
                        {"seed", uint64_t{seed_of_picture(request, first_image + i)}}});
    out.push_back({{"file", f.file}, {"images", std::move(images)}});
  }
  return out;
}

}  // namespace ebb::cli
