#include "apps/server/training_runs.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "apps/server/beneath.h"
#include "apps/server/job.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/parse_json.h"
#include "train/run_folder.h"

namespace ebb::server {
namespace {

namespace fs = std::filesystem;

constexpr int most_levels = 4, most_folders = 5000;
constexpr size_t most_runs = 200, most_pictures = 24;
constexpr double search_every = 5, heartbeat = 60;  // seconds
// Bytes of metrics that one request reads: about 0.1 s.
constexpr int64_t budget_of_request = int64_t{4} << 20;
constexpr int64_t most_settings = int64_t{1} << 20, most_picture = int64_t{64} << 20;

std::string id_of(const std::string& path) {
  char out[17];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(fnv1a(path)));
  return out;
}

std::string joined(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "/" + name;
}

bool has_metrics(const std::string& folder) {
  std::error_code error;
  return fs::is_regular_file(fs::symlink_status(train::metrics_file(folder), error));
}

double changed(const Descriptor& file) {
  struct stat facts {};
  return file && ::fstat(file.number(), &facts) == 0
             ? static_cast<double>(facts.st_mtim.tv_sec) +
                   static_cast<double>(facts.st_mtim.tv_nsec) * 1e-9
             : 0;
}

// {} for what is no JSON object.
Json read_object(const Descriptor& folder, std::string_view name) {
  Json out = parse_json<Json>(read_beneath(folder, name, most_settings).value_or(""));
  return out.is_object() ? out : Json::object();
}

// A number of the section `train` of config.json; 0 where it says none.
double setting(const Json& config, const char* name) {
  const auto train = config.find("train");
  if (train == config.end() || !train->is_object()) return 0;
  const auto at = train->find(name);
  return at != train->end() && at->is_number() ? at->get<double>() : 0;
}

// What others may know of an object: not where data lie.
Json picked(const Json& from, std::initializer_list<const char*> names) {
  Json out = Json::object();
  for (const char* name : names)
    if (from.is_object() && from.contains(name) && from[name].is_primitive())
      out[name] = from[name];
  return out;
}

// For curves: no more digits than can be seen.
double rounded(double v) {
  char text[40];
  std::snprintf(text, sizeof text, "%.5g", v);
  return std::strtod(text, nullptr);
}

Json curve_json(const ThinCurve& curve) {
  Json out = Json::array();
  for (const ThinCurve::Part& p : curve.parts())
    out.push_back({p.step, rounded(p.mean), rounded(p.least), rounded(p.greatest)});
  return out;
}

struct Sample {
  int64_t step;
  double changed;
};

// The newest first.
std::vector<Sample> samples_in(const Descriptor& folder) {
  std::vector<Sample> out;
  const Descriptor samples = open_folder_beneath(folder, "samples");
  if (!samples) return out;
  std::error_code error;
  // The folder that is open, whatever has its name by now.
  for (fs::directory_iterator at(str("/proc/self/fd/", samples.number()), error), end;
       !error && at != end; at.increment(error))
    if (const auto step = train::step_of_sample(at->path().filename().string()))
      out.push_back({*step, 0});
  std::ranges::sort(out, std::greater(), &Sample::step);
  out.resize(std::min(out.size(), most_pictures));
  for (Sample& s : out)
    s.changed = changed(open_file_beneath(folder, train::sample_file("", s.step)));
  std::erase_if(out, [](const Sample& s) { return s.changed == 0; });
  return out;
}

// Seconds that are left; none: not known.
std::optional<double> seconds_left(const TrainingLog& log, const Json& settings, double began) {
  const double steps = setting(settings, "steps"), minutes = setting(settings, "minutes");
  std::optional<double> out;
  if (const double each = log.seconds_a_step(); steps > 0 && each > 0)
    out = std::max(0.0, (steps - static_cast<double>(log.now().step)) * each);
  if (minutes > 0 && began > 0) {
    const double left = std::max(0.0, began + minutes * 60 - unix_time());
    out = std::min(out.value_or(left), left);
  }
  return out;
}

Json known_or_null(double v, bool is_known) { return is_known ? Json(v) : Json(); }

}  // namespace

TrainingRuns::TrainingRuns(const std::vector<std::string>& folders) {
  for (const std::string& f : folders) {
    require(fs::is_directory(f), "serve: --runs is no folder  ", f);
    roots_.push_back(fs::canonical(f).string());
  }
}

void TrainingRuns::find_runs_in(const std::string& root, const std::string& path, int levels,
                                int& folders) {
  const fs::path here = path.empty() ? fs::path(root) : fs::path(root) / path;
  if (found_.size() == most_runs || --folders < 0) return;
  if (has_metrics(here.string())) {
    const std::string id = id_of(here.string());
    found_.push_back(id);
    Run& run = runs_[id];
    run.root = root, run.path = path;
    run.name = path.empty() ? fs::path(root).filename().string() : path;
    return;
  }
  if (levels == 0) return;
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator at(here, error), end; !error && at != end; at.increment(error))
    if (fs::is_directory(at->symlink_status(error)))
      names.push_back(at->path().filename().string());
  std::ranges::sort(names);
  for (const std::string& name : names)
    if (!name.starts_with('.')) find_runs_in(root, joined(path, name), levels - 1, folders);
}

void TrainingRuns::find_runs() {
  if (steady_time() - searched_ < search_every) return;
  found_.clear();
  int folders = most_folders;
  for (const std::string& root : roots_) find_runs_in(root, "", most_levels, folders);
  std::erase_if(runs_, [&](const auto& one) { return !std::ranges::count(found_, one.first); });
  searched_ = steady_time();
}

void TrainingRuns::look(Run& run, int64_t& budget) {
  const Descriptor folder = open_folder_beneath(open_folder(run.root), run.path);
  const int64_t before = run.log.size();
  run.log.read(open_file_beneath(folder, "metrics.jsonl"), budget);
  const bool is_locked = folder && !try_lock(folder.number(), LockFor::reading);
  run.is_locked_before |= is_locked;
  // Where the file system has no locks, whoever adds lines is running.
  if (before > 0 && run.log.size() > before && !run.is_locked_before) run.grew = steady_time();
  run.running = is_locked || (!run.is_locked_before && steady_time() - run.grew < heartbeat);
  run.settings = read_object(folder, "config.json");
  run.began = changed(open_file_beneath(folder, "run.json"));
}

TrainingRuns::Run* TrainingRuns::find(std::string_view id) {
  find_runs();
  const auto at = runs_.find(id);
  return at == runs_.end() ? nullptr : &at->second;
}

Json TrainingRuns::run_json(const std::string& id, const Run& run) {
  const TrainingLog::Now& now = run.log.now();
  const double each = run.log.seconds_a_step(), steps = setting(run.settings, "steps");
  const double images = setting(run.settings, "batch");
  const auto left = seconds_left(run.log, run.settings, run.began);
  Json out = {{"id", id},
              {"name", run.name},
              {"running", run.running},
              {"step", now.step},
              {"steps", known_or_null(steps, steps > 0)},
              {"loss", known_or_null(now.loss, now.step > 0)},
              {"smoothed_loss", known_or_null(now.smoothed_loss, now.step > 0)},
              {"validation", nullptr},
              {"lr", now.lr},
              {"grad_norm", now.grad_norm},
              {"steps_per_second", known_or_null(1 / each, each > 0)},
              {"images_per_second", known_or_null(images / each, each > 0 && images > 0)},
              {"seconds", now.seconds},
              {"eta_s", known_or_null(left.value_or(0), run.running && left)},
              {"changed", run.log.changed()},
              {"read", run.log.share_read()},
              {"damaged", run.log.damaged()}};
  if (now.validation_step >= 0)
    out["validation"] = {{"step", now.validation_step}, {"loss", now.validation}};
  return out;
}

Json TrainingRuns::list() {
  const std::lock_guard lock(mutex_);
  find_runs();
  int64_t budget = budget_of_request;
  std::vector<std::pair<std::string, const Run*>> all;
  for (auto& [id, run] : runs_) {
    look(run, budget);
    all.emplace_back(id, &run);
  }
  std::ranges::sort(all, std::greater(), [](const auto& one) {
    return std::pair(one.second->running, one.second->log.changed());
  });
  Json runs = Json::array();
  for (const auto& [id, run] : all) runs.push_back(run_json(id, *run));
  return {{"folders", roots_.size()}, {"runs", std::move(runs)}};
}

Json TrainingRuns::run(std::string_view id) {
  const std::lock_guard lock(mutex_);
  Run* run = find(id);
  if (!run) return {};
  int64_t budget = budget_of_request;
  look(*run, budget);
  const Descriptor folder = open_folder_beneath(open_folder(run->root), run->path);
  Json out = run_json(std::string(id), *run);
  out["curve"] = {{"loss", curve_json(run->log.loss())},
                  {"validation", curve_json(run->log.validation())},
                  {"steps_a_point", run->log.loss().values_a_part()}};
  Json samples = Json::array();
  for (const Sample& s : samples_in(folder))
    samples.push_back({{"step", s.step},
                       {"url", str("/ebb/v1/training/", id, "/picture?step=", s.step,
                                   "&v=", static_cast<int64_t>(s.changed * 1e3))}});
  out["samples"] = std::move(samples);
  const auto train = run->settings.find("train");
  out["settings"] = picked(train == run->settings.end() ? Json() : *train,
                           {"model", "batch", "lr", "schedule", "optimizer", "minutes"});
  out["facts"] = picked(read_object(folder, "run.json"),
                        {"started", "device", "dtype", "parameters", "trained_parameters", "ebb"});
  return out;
}

std::optional<std::string> TrainingRuns::picture(std::string_view id, int64_t step) {
  std::string root, path;
  {
    const std::lock_guard lock(mutex_);
    const Run* run = find(id);
    if (!run) return {};
    root = run->root, path = run->path;
  }
  const Descriptor folder = open_folder_beneath(open_folder(root), path);
  return read_beneath(folder, train::sample_file("", step), most_picture);
}

}  // namespace ebb::server
