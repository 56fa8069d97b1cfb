#include "train/run_files.h"

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/parse_json.h"
#include "base/version.h"
#include "io/file.h"

namespace ebb::train {
namespace {

std::string file_of(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}

}  // namespace

void write_run_files(const std::string& folder, const RunInfo& info, const RunFacts& facts) {
  const auto section = [](const std::string& json) { return json.empty() ? "{}" : json; };
  io::write_whole_file(file_of(folder, "config.json"),
                       str("{\n\"train\": ", section(info.train_config),
                           ",\n\"diffusion\": ", section(info.diffusion_config),
                           ",\n\"network\": ", section(info.model_config), "\n}\n"),
                       "config");
  const std::time_t now = std::time(nullptr);
  char started[40] = "";
  std::strftime(started, sizeof started, "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
  nlohmann::ordered_json run = {{"ebb", version},
                                {"started", started},
                                {"device", facts.device},
                                {"dtype", str(facts.dtype)},
                                {"parameters", facts.parameters},
                                {"data", facts.data}};
  if (facts.trained != facts.parameters) run["trained_parameters"] = facts.trained;
  if (facts.images > 0) run["images"] = facts.images;
  io::write_whole_file(file_of(folder, "run.json"), run.dump(2) + '\n', "run");
}

int64_t images_of_run(const std::string& folder) {
  const std::string path = file_of(folder, "run.json");
  if (!std::filesystem::exists(path)) return 0;
  const auto run = parse_json<nlohmann::json>(io::read_whole_file(path, "run", 1 << 24));
  const bool told = run.is_object() && run.contains("images") && run["images"].is_number_integer();
  return told ? run["images"].get<int64_t>() : 0;
}

}  // namespace ebb::train
