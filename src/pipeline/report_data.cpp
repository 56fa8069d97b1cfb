#include "pipeline/report_data.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "base/parse_json.h"
#include "io/file.h"
#include "pipeline/load_model.h"
#include "train/config.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view evaluation = "eval/";

std::string read_text(const fs::path& path) {
  return io::read_whole_file(path.string(), "report", int64_t{1} << 30);
}

// Null if there is no such file, or none that can be read, of which the run's faults tell.
Json read_object(const fs::path& path, RunRecord& run) {
  if (!fs::exists(path)) return {};
  const Json j = parse_json<Json>(read_text(path));
  if (j.is_object()) return j;
  run.faults.push_back(str("report: left out, as it is no JSON object  ", path.string()));
  return {};
}

// Right from the first value on, over about a fortieth of the run.
Curve smoothed(const Curve& of) {
  const double window = std::clamp(static_cast<double>(of.value.size()) / 40, 5.0, 500.0);
  train::Smoothed mean(1 - 1 / window);
  Curve out{of.step, {}};
  for (const double v : of.value) {
    mean.add(v);
    out.value.push_back(mean.value());
  }
  return out;
}

void add_line(RunRecord& run, std::map<int64_t, Json>& evaluations, const Json& line) {
  const int64_t step = line["step"].get<int64_t>();
  run.steps = std::max(run.steps, step);
  for (const auto& [key, value] : line.items()) {
    if (!value.is_number() || key == "step") continue;
    const auto v = value.get<double>();
    if (key.starts_with(evaluation)) {
      evaluations[step][key.substr(evaluation.size())] = value;
    } else if (key == "seconds") {
      run.seconds = std::max(run.seconds, v);
    } else {
      run.curves[key].step.push_back(static_cast<double>(step));
      run.curves[key].value.push_back(v);
    }
  }
}

void read_evaluations(RunRecord& run, const fs::path& dir, std::map<int64_t, Json> evaluations) {
  const Json last = read_object(dir / "eval.json", run);
  if (!last.is_null()) {
    const bool dated = last.contains("step") && last["step"].is_number_integer();
    evaluations[dated ? last["step"].get<int64_t>() : run.steps] = last;
    if (const auto w = last.find("warnings"); w != last.end() && w->is_array())
      for (const Json& text : *w)
        if (text.is_string()) run.warnings.push_back(text.get<std::string>());
  }
  for (const auto& [step, values] : evaluations)
    run.measured.push_back({step, str("step ", step), values});
  // of a run of a tenth of the length, not a part of this one
  const Json tenth = read_object(dir / "eval_tenth.json", run);
  if (!tenth.is_null())
    run.measured.insert(run.measured.begin(), {0, "a tenth of the training", tenth});
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// The defaults of a run of the model, as config.json has them.
Json usual_settings(const std::string& model) {
  NamedModel named = find_model(model);
  DiffusionConfig diffusion = usual_diffusion(*named.model, named.config);
  train::TrainConfig train;
  train.validation = "auto";
  const auto json = [](const std::vector<Field>& fields) {
    return parse_json<Json>(fields_json(fields));
  };
  return {{"train", json(fields_of(train))},
          {"diffusion", json(fields_of(diffusion))},
          {"network", json(named.config.fields())}};
}

void read_settings(RunRecord& run, const Json& config) {
  Json usual;
  try {
    usual = usual_settings(config.at("train").at("model").get<std::string>());
  } catch (const std::exception&) {
    usual = Json::object();  // of a model that this version does not know: nothing to compare with
  }
  for (const auto& [section, fields] : config.items()) {
    if (!fields.is_object()) continue;
    const Json& defaults = usual.contains(section) ? usual[section] : Json::object();
    for (const auto& [name, value] : fields.items()) {
      Setting s{.section = section, .name = name, .value = text_of(value), .usual = {}};
      if (defaults.contains(name)) {
        s.usual = text_of(defaults[name]);
        s.differs = defaults[name] != value;
      }
      run.settings.push_back(std::move(s));
    }
  }
}

}  // namespace

const Curve& RunRecord::curve(const std::string& key) const {
  static const Curve none;
  const auto it = curves.find(key);
  return it == curves.end() ? none : it->second;
}

RunRecord read_run(const std::string& folder) {
  const fs::path dir(folder), metrics = train::metrics_file(folder);
  require(fs::exists(folder), "report: must be the folder of a run (it is not there)  ", folder);
  require(fs::exists(metrics), "report: must be the folder of a run (there is no ",
          "metrics.jsonl in it)  ", folder);
  RunRecord run;
  run.name = fs::absolute(dir / "").lexically_normal().parent_path().filename().string();
  std::map<int64_t, Json> evaluations;
  std::istringstream lines(read_text(metrics));
  int64_t left_out = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json j = parse_json<Json>(line);
    if (j.is_object() && j.contains("step") && j["step"].is_number_integer())
      add_line(run, evaluations, j);
    else
      ++left_out;
  }
  if (left_out > 0)
    run.faults.push_back(str("report: lines that are no JSON objects with a step are left out (",
                             left_out, ")  ", metrics.string()));
  require(!run.curve("loss").step.empty(), "report: no metrics in  ", metrics.string());
  run.curves["smoothed"] = smoothed(run.curve("loss"));
  for (const double loss : run.curve("loss").value) run.recent_loss.add(loss);
  run.facts = read_object(dir / "run.json", run);
  read_evaluations(run, dir, std::move(evaluations));
  if (const Json config = read_object(dir / "config.json", run); config.is_object())
    read_settings(run, config);
  return run;
}

}  // namespace ebb
