// ebb eval CHECKPOINT: how good the samples are.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/command.h"
#include "apps/cli/gpus.h"
#include "apps/cli/interruption.h"
#include "apps/cli/picture_output.h"
#include "apps/cli/terminal.h"
#include "base/choices.h"
#include "base/error.h"
#include "base/parse_json.h"
#include "io/file.h"
#include "pipeline/evaluate.h"
#include "train/metrics.h"
#include "train/stop.h"

namespace ebb::cli {
namespace {

struct Options {
  std::string checkpoint, model, out, gpus;
  bool overwrite = false;
  EvaluateOptions evaluate;
  CommonOptions common;
  FieldTexts diffusion;
  void fields(auto&& f) {
    f("data", evaluate.data, "images to compare with, as for train");
    f("n", evaluate.n, "number of samples");
    f("features", evaluate.features,
      "another feature space: inception=FILE of FID and KID, or a network file");
    f("out", out,
      "a .json file for the figures; without it eval.json in the run's folder, if CHECKPOINT is "
      "one");
    f("overwrite", overwrite, overwrite_help);
    f("model", model, "model of a file that is not recognised");
    f("gpus", gpus, gpus_help);
    evaluate.generate.fields(f);
  }
};

// None if a signal stopped it.
std::optional<Quality> evaluate_until(const train::StopSignals& signals, std::mutex& telling,
                                      const Options& o, const LoadedModel& model,
                                      const std::vector<Context>& devices) {
  const auto log = [&](std::string_view line) {
    const std::lock_guard lock(telling);
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  };
  try {
    return evaluate(model, o.evaluate, devices, {log, [&] { return signals.requested() != 0; }});
  } catch (const Cancelled&) {
    return std::nullopt;
  }
}

nlohmann::ordered_json figures(const Quality& q, int64_t step) {
  nlohmann::ordered_json j;
  j["step"] = step;
  j["features"] = q.features;
  const train::KernelDistance& k = q.kernel_distance;
  const std::string kernel = q.inception ? "kid" : "kernel_distance";
  j[q.inception ? "fid" : "frechet_distance"] = q.frechet_distance;
  j[kernel] = k.mean;
  j[kernel + "_deviation"] = k.deviation;
  j["subsets"] = k.subsets;
  j["subset_size"] = k.subset_size;
  const auto or_null = [](const std::optional<double>& v) {
    return v ? nlohmann::ordered_json(*v) : nlohmann::ordered_json();
  };
  j["class_accuracy"] = or_null(q.class_accuracy);
  j["n"] = q.n;
  j["held_out"] = q.held_out;
  j["held_out_is_training"] = q.held_out_seen;
  j["classifier_accuracy"] = or_null(q.classifier_accuracy);
  j["warnings"] = q.doubts;
  j["seconds"] = q.seconds;
  return j;
}

constexpr std::string_view out_flag = "eval: --out";

// Whether a file is one of this command's.
bool has_figures(const std::string& file) {
  constexpr int64_t most = 1 << 24;
  if (std::filesystem::file_size(file) > most) return false;
  const auto j = parse_json(io::read_whole_file(file, out_flag, most));
  return j.is_object() && j.contains("held_out") && j.contains("features");
}

void write_figures(const Options& o, const nlohmann::ordered_json& j) {
  if (!o.out.empty()) write_text(o.out, j.dump(2) + '\n', out_flag, o.overwrite, has_figures);
}

// A line in the metrics of the run.
void add_to_metrics(const Options& o, const nlohmann::ordered_json& j) {
  std::vector<std::pair<std::string, double>> named;
  for (const auto& [key, value] : j.items())
    if (value.is_number() && key != "step") named.emplace_back("eval/" + key, value);
  std::vector<train::NamedNumber> numbers;
  for (const auto& [name, value] : named) numbers.push_back({name, value});
  train::append_metrics(o.checkpoint, j["step"], numbers);
}

// Where one cannot be written, the other is. Throws Error, of both.
void record(const Options& o, const nlohmann::ordered_json& j) {
  std::string errors;
  for (const auto& write : {write_figures, add_to_metrics}) {
    try {
      write(o, j);
    } catch (const Error& e) {
      errors += str(errors.empty() ? "" : "; ", e.what());
    }
  }
  require(errors.empty(), errors);
}

void print(const Quality& q) {
  if (q.class_accuracy)
    std::printf("class accuracy      %.1f %%  (the classifier's on %s images: %.1f %%)\n",
                100 * *q.class_accuracy, q.held_out_seen ? "training" : "held-out",
                100 * *q.classifier_accuracy);
  std::printf("%-18s  %.3f  (%lld samples, %lld held-out images; features: %s)\n",
              q.inception ? "FID" : "Frechet distance", q.frechet_distance,
              static_cast<long long>(q.n), static_cast<long long>(q.held_out), q.features.c_str());
  const train::KernelDistance& k = q.kernel_distance;
  std::printf("%-18s  %.5f  (%s)\n", q.inception ? "KID" : "kernel distance", k.mean,
              k.subsets == 1 ? str("all ", k.subset_size, " of either").c_str()
                             : str("standard deviation ", k.deviation, " over ", k.subsets,
                                   " subsets of ", k.subset_size)
                                   .c_str());
}

int run(const Options& o) {
  require(!o.evaluate.data.empty(), "eval: --data is missing");
  const size_t gpus = devices_of(o.gpus, o.common);
  require(o.out.empty() || o.out.ends_with(".json"), "eval: --out must be a .json file  ", o.out);
  if (!o.out.empty())
    check_replaced(o.out, out_flag, o.overwrite, "has no figures of ebb eval", has_figures);
  train::check_can_append_metrics(o.checkpoint);
  const train::StopSignals signals(stopping);
  std::mutex telling;
  const auto interrupted = [&] {
    const nlohmann::ordered_json facts = {{"n", o.evaluate.n}};
    return say_interrupted("eval", signals.requested(), "nothing was measured",
                           o.common.json ? &facts : nullptr);
  };
  std::optional<StopDeadline> deadline(std::in_place, signals, telling, interrupted);
  const LoadedModel model = load_model(o.checkpoint, o.model, o.diffusion);
  say_guesses(model);
  const std::vector<Context> devices =
      open_devices(o.common, o.gpus, used_devices(model, o.evaluate, gpus));
  const std::optional<Quality> measured = evaluate_until(signals, telling, o, model, devices);
  deadline.reset();
  say_changed_files(nullptr);
  if (!measured) return interrupted();
  const nlohmann::ordered_json j = figures(*measured, model.step);
  if (o.common.json)
    print_json(j);
  else
    print(*measured);
  record(o, j);  // what was measured is told by then
  return 0;
}

std::function<int()> bind(CLI::App& app, const std::vector<std::string>&) {
  const auto o = std::make_shared<Options>();
  add_positional(app, "CHECKPOINT", o->checkpoint, "a model file or the folder of a training run");
  add_flags(app, fields_of(*o));
  add_overrides(app, o->diffusion);
  add_flags(app, fields_of(o->common));
  return [o, &app] {
    const bool named = std::ranges::count(given_fields(app), "out") > 0;
    if (!named) o->out = in_run_folder(o->checkpoint, "eval.json");
    resolve(o->evaluate.generate);
    say_drawn(o->evaluate.generate.seed);
    resolve_auto({&o->evaluate.generate.schedule, &o->evaluate.generate.noise});
    o->evaluate.generate.steps_given = is_given(app, "steps");
    return run(*o);
  };
}

}  // namespace

const Command& eval() {
  static const Command c{
      "eval",
      "measure the quality of samples",
      "ebb eval out/demo --data /usr/share/datasets/fashion-mnist --n 1000",
      bind,
      {"data", "n", "out", "features", "steps", "sampler", "guidance", "seed", "json", "device"}};
  return c;
}

}  // namespace ebb::cli
