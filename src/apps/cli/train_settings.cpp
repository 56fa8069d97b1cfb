#include "apps/cli/train_settings.h"

#include <algorithm>
#include <filesystem>

#include "apps/cli/command.h"
#include "apps/cli/ranks.h"
#include "base/error.h"
#include "base/json.h"
#include "base/parse_json.h"
#include "io/file.h"
#include "train/run_files.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;

// Of a start, not of how the run goes on.
constexpr std::string_view of_a_start[] = {"out", "resume", "overwrite", "gpus"};

std::string shown(const Field& f) {
  const std::string text = field_text(f);
  return text.empty() ? "empty" : text;
}

}  // namespace

void check_given(const train::TrainConfig& c, const std::vector<std::string>& given) {
  const auto is_given = [&](std::string_view name) {
    return std::ranges::find(given, name) != given.end();
  };
  require(!is_given("ema_halflife") || c.ema_halflife == 0 || c.ema == 0,
          "train: --ema-halflife has no effect with --ema ", c.ema, ", a decay per step");
  require(!is_given("ema_rampup") || c.ema_rampup == 0 || train::ema_schedule(c).halflife > 0,
          "train: --ema-rampup has no effect without --ema-halflife",
          c.ema > 0 ? str(" (--ema ", c.ema, ")") : "");
  require(!is_given("validation_every") || c.validation_every == 0 || c.validation != "off",
          "train: --validation-every has no effect without --validation");
}

nlohmann::ordered_json read_config(const std::string& file) {
  JsonObject read = json_object(io::read_whole_file(file, "config", 1 << 24));
  require(read.fault.empty(), "config: ", read.fault, "  ", file);
  return std::move(read.value);
}

void say_edits(const std::string& folder, const std::string& of_checkpoint) {
  const fs::path path = fs::path(folder) / "config.json";
  if (!fs::exists(path)) return;
  const nlohmann::json file = read_config(path.string()),
                       run = parse_json<nlohmann::json>(of_checkpoint);
  if (!file.contains("train") || !file["train"].is_object()) return;
  for (const auto& [name, value] : file["train"].items())
    if (run.contains(name) && run[name] != value)
      say_once(str("resume: ", path.string(), " says ", name, ' ', value.dump(),
                   ", which is not read; the checkpoint's is ", run[name].dump(), ", and ",
                   flag_of(name), " changes it"));
}

void say_changes(const std::vector<Field>& before, const std::vector<Field>& now) {
  std::string changes;
  for (size_t i = 0; i < now.size(); ++i) {
    const std::string was = shown(before[i]), is = shown(now[i]);
    if (is == was || std::ranges::find(of_a_start, now[i].name) != std::end(of_a_start)) continue;
    changes += str(changes.empty() ? "" : ", ", now[i].name, ' ', is, " (was ", was, ")");
  }
  if (!changes.empty()) say_once("resume: goes on with " + changes);
}

void say_other_count(const std::string& folder, int64_t images) {
  const int64_t before = train::images_of_run(folder);
  if (before > 0 && before != images)
    say_once(str("resume: the data has ", images, " images, and had ", before,
                 " when the run was last started"));
}

}  // namespace ebb::cli
