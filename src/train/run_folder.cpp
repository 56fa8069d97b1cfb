#include "train/run_folder.h"

#include <fcntl.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/lock.h"
#include "base/parse_json.h"
#include "io/file.h"
#include "io/picture_file.h"
#include "train/checkpoint.h"

namespace ebb::train {
namespace {

namespace fs = std::filesystem;

// True for what training, and eval and report of it, write; it goes when the run is overwritten.
bool belongs_to_run(const std::string& name) {
  return is_checkpoint_file(name) || name == "metrics.jsonl" || name == "config.json" ||
         name == "run.json" || name == "samples.png" || name == "eval.json" ||
         name == "eval_tenth.json" || name == "report.html" ||
         name.starts_with("events.out.tfevents.");
}

// A grid that `ebb sample` made, by the settings that it has as text.
bool is_grid_of_samples(const std::string& file) {
  try {
    const auto text = io::read_picture_text(file);
    const auto software = text.find("Software");
    return software != text.end() && software->second.starts_with("ebb ") &&
           text.contains("checkpoint");
  } catch (const Error&) {
    return false;
  }
}

bool half_written(const std::string& name) {
  const size_t at = name.rfind(".tmp-");
  const std::string whole = name.substr(0, at);
  return at != std::string::npos && (belongs_to_run(whole) || step_of_sample(whole));
}

}  // namespace

std::string sample_file(const std::string& folder, int64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "step-%08lld.png", static_cast<long long>(step));
  return (fs::path(folder) / "samples" / name).string();
}

std::string sample_model(const std::string& folder) {
  return (fs::path(folder) / "samples" / "model").string();
}

std::optional<int64_t> step_of_sample(std::string_view name) {
  constexpr std::string_view prefix = "step-", suffix = ".png";
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return {};
  const char *from = name.data() + prefix.size(), *end = name.data() + name.size() - suffix.size();
  int64_t step = 0;
  const auto [at, error] = std::from_chars(from, end, step);
  if (from >= end || error != std::errc() || at != end || step < 0) return {};
  return step;
}

namespace {

// For reading: to look whether somebody writes. None where there is no folder yet, or its file
// system knows no locks. Others that look have their lock for a moment, which is waited for.
RunLock lock_run_folder(const std::string& folder, LockFor use) {
  constexpr std::chrono::milliseconds moment(10);
  RunLock lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  bool has = !lock;
  for (int tries = use == LockFor::writing ? 20 : 1; tries > 0 && !has; --tries) {
    has = try_lock(lock.number(), use);
    if (!has && tries > 1) std::this_thread::sleep_for(moment);
  }
  require(has, "out: another process is training in the folder  ", folder);
  return lock;
}

// The run writes it anew when it goes on; a damaged one may be a user's that was to count.
void check_config(const std::string& file) {
  if (!fs::exists(file)) return;
  const std::string fault = json_object(io::read_whole_file(file, "config", 1 << 24)).fault;
  require(fault.empty(), "config: ", fault,
          "; move it away to go on, as the run's settings are in its checkpoint  ", file);
}

// A name beside that of a model without a state, which no checkpoint has.
fs::path aside_of(const fs::path& model) {
  for (int64_t i = 1;; ++i) {
    const std::string mark = i == 1 ? ".without-state" : str(".without-state-", i);
    fs::path out = model;
    out.replace_filename(model.stem().string() + mark + model.extension().string());
    if (!fs::exists(out)) return out;
  }
}

// A model without a state may be the best that the user has: it is never deleted.
void put_aside_halves(const std::string& folder, const std::function<void(std::string_view)>& say) {
  const HalfCheckpoints halves = half_checkpoints(folder);
  std::error_code error;
  for (const fs::path model : halves.models) {
    const fs::path kept = aside_of(model);
    fs::rename(model, kept, error);
    require(!error, "out: cannot rename (", error.message(), ")  ", model.string());
    say(str(model.filename().string(), " has no training state to go on from; it is kept as ",
            kept.filename().string(), ", and the run goes on from step ", last_checkpoint(folder)));
  }
  for (const fs::path state : halves.states) {
    fs::remove(state, error);
    require(!error, "out: cannot delete (", error.message(), ")  ", state.string());
    say(str("deleted ", state.filename().string(), ", the state of a model that is gone"));
  }
}

}  // namespace

void check_run_folder(const std::string& folder, bool resume, bool overwrite) {
  lock_run_folder(folder, LockFor::reading);
  io::check_can_fill(folder, "out");
  if (resume) {
    last_checkpoint(folder);
    check_config((fs::path(folder) / "config.json").string());
  } else if (!overwrite) {
    const std::vector<int64_t> steps = checkpoint_steps(folder);
    require(steps.empty(), "out: the folder holds a run of ", steps.empty() ? 0 : steps.back(),
            " steps; give --resume to go on, --overwrite to start anew, or another --out  ",
            folder);
    const std::optional<int64_t> model = last_model(folder);
    require(
        !model, "out: the folder holds a model of step ", model.value_or(0),
        " without its training state; another --out keeps it, --overwrite deletes it and starts ",
        "anew  ", folder);
    require(!fs::exists(fs::path(folder) / "metrics.jsonl"),
            "out: the folder holds a run without a checkpoint; give --overwrite to start anew, or "
            "another --out  ",
            folder);
  }
}

RunLock begin_run_folder(const std::string& folder, bool overwrite,
                         const std::function<void(std::string_view)>& say) {
  io::make_folder(folder, "out");
  RunLock lock = lock_run_folder(folder, LockFor::writing);
  std::error_code error;
  std::vector<fs::path> gone;
  if (!overwrite)
    put_aside_halves(
        folder, say ? say : [](std::string_view) {});
  for (const auto& e : fs::directory_iterator(folder)) {
    const std::string name = e.path().filename().string();
    if (overwrite && name == "samples.png" && !is_grid_of_samples(e.path().string())) {
      if (say) say(str("out: kept, as ebb sample did not make it  ", e.path().string()));
      continue;
    }
    if (half_written(name) || (overwrite && belongs_to_run(name))) gone.push_back(e.path());
  }
  remove_abandoned(sample_model(folder));
  const fs::path samples = fs::path(folder) / "samples";
  if (fs::is_directory(samples)) {
    for (const auto& e : fs::directory_iterator(samples)) {
      const std::string name = e.path().filename().string();
      if (half_written(name) || (overwrite && step_of_sample(name))) gone.push_back(e.path());
    }
  }
  for (const fs::path& p : gone) {
    if (!fs::is_directory(p)) fs::remove(p, error);
    require(!error, "out: cannot delete (", error.message(), ")  ", p.string());
  }
  return lock;
}

}  // namespace ebb::train
