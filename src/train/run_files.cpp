#include "train/run_files.h"

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/version.h"
#include "io/file.h"

namespace ebb::train {

void write_run_files(const std::string& folder, const RunInfo& info, const RunFacts& facts) {
  const auto file = [&](const char* name) {
    return (std::filesystem::path(folder) / name).string();
  };
  const auto section = [](const std::string& json) { return json.empty() ? "{}" : json; };
  io::write_whole_file(file("config.json"),
                       str("{\n\"train\": ", section(info.train_config),
                           ",\n\"diffusion\": ", section(info.diffusion_config),
                           ",\n\"network\": ", section(info.model_config), "\n}\n"),
                       "config");
  const std::time_t now = std::time(nullptr);
  char started[40] = "";
  std::strftime(started, sizeof started, "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
  const nlohmann::ordered_json run = {{"ebb", version},
                                      {"started", started},
                                      {"device", facts.device},
                                      {"dtype", str(facts.dtype)},
                                      {"parameters", facts.parameters},
                                      {"data", facts.data}};
  io::write_whole_file(file("run.json"), run.dump(2) + '\n', "run");
}

}  // namespace ebb::train
