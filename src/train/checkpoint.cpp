#include "train/checkpoint.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/fields.h"
#include "base/hash.h"
#include "base/json.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "train/model_weights.h"

namespace ebb::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view model_prefix = "model-", state_prefix = "state-";
constexpr std::string_view suffix = ".safetensors";
constexpr size_t digits = 8;
constexpr const char* task_key = "ebb.task";

std::string file_name(std::string_view prefix, int64_t step) {
  const std::string number = std::to_string(step);
  const size_t pad = number.size() < digits ? digits - number.size() : 0;
  return str(prefix, std::string(pad, '0'), number, suffix);
}

// The step of a file name that starts with `prefix`, or none.
std::optional<int64_t> step_of(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return {};
  if (name.size() < prefix.size() + digits + suffix.size()) return {};
  name = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  int64_t step = 0;
  const auto [at, ec] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (ec != std::errc() || at != name.data() + name.size() || step < 0) return {};
  return step;
}

std::vector<int64_t> steps_in(const std::string& folder, std::string_view prefix) {
  std::vector<int64_t> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (const auto step = step_of(entry.path().filename().string(), prefix)) out.push_back(*step);
  std::sort(out.begin(), out.end());
  return out;
}

std::map<std::string, std::string> metadata_of(const TrainState& s, const RunInfo& info,
                                               std::string_view kind) {
  std::map<std::string, std::string> out = {
      {"format", "pt"},  // layouts are torch's; some readers ask for it
      {"ebb.kind", std::string(kind)},
      {"ebb.step", std::to_string(s.step)},
      {"ebb.model", info.model},
      {"ebb.model_config", info.model_config},
      {"ebb.diffusion_config", info.diffusion_config},
      {"ebb.train_config", info.train_config},
      {"ebb.class_names", strings_json(info.class_names)}};
  if (!info.task.empty()) out[task_key] = info.task;
  return out;
}

// Of a model file that others write: it is no network of ebb's, and says only of which step it is.
std::map<std::string, std::string> other_metadata(const TrainState& s) {
  return {{"format", "pt"}, {"ebb.step", std::to_string(s.step)}};
}

const std::string& entry(const io::TensorFile& file, const std::string& key) {
  const auto it = file.metadata().find(key);
  require(it != file.metadata().end(), "checkpoint: metadata must have '", key, "'  ",
          file.files()[0]);
  return it->second;
}

// "" of files that ebb did not write. Throws Error for a kind that there is not.
std::string kind_of(const io::TensorFile& file) {
  const auto it = file.metadata().find("ebb.kind");
  if (it == file.metadata().end()) return "";
  require(it->second == "model" || it->second == "state",
          "checkpoint: 'ebb.kind' must be model or state (got '", it->second, "')  ",
          file.files()[0]);
  return it->second;
}

int64_t recorded_step(const io::TensorFile& file) {
  const std::string& text = entry(file, "ebb.step");
  const int64_t step = parse_integer(text, "checkpoint: 'ebb.step' in " + file.files()[0]);
  require(step >= 0, "checkpoint: 'ebb.step' must not be negative (", step, ")  ", file.files()[0]);
  return step;
}

std::vector<std::string> recorded_classes(const io::TensorFile& file) {
  const std::string what = "checkpoint: 'ebb.class_names' in " + file.files()[0];
  const std::vector<std::string> names = strings_from_json(entry(file, "ebb.class_names"), what);
  std::set<std::string_view> seen;
  for (const std::string& name : names)
    require(seen.insert(name).second, what, ": '", name, "' stands twice");
  return names;
}

const Tensor& tensor(const TrainState& s, const std::string& name) {
  const auto it = s.tensors.find(name);
  require(it != s.tensors.end(), "checkpoint: the state has no tensor '", name, "'");
  return it->second;
}

void remove_checkpoint(const std::string& folder, int64_t step) {
  std::error_code ignored;  // what cannot be deleted stays; the new checkpoint is there
  // In this order: a model without a state is one that a user may have kept.
  fs::remove(model_file(folder, step), ignored);
  fs::remove(state_file(folder, step), ignored);
}

void write_model(const std::string& folder, const TrainState& s, const RunInfo& info) {
  std::vector<io::NamedTensor> out;
  for (const nn::Weight& w : s.weights)
    out.push_back({w.name, nn::to_file(w, tensor(s, w.trained ? "ema." + w.name : w.name))});
  io::write_safetensors(model_file(folder, s.step), out, metadata_of(s, info, "model"));
}

// States of the weight's own type lie as the weight does, others as they are.
bool lies_as_weight(const WeightState& state, const nn::Weight& w) {
  return state.type == Type{DType::f32, w.shape};
}
Tensor in_file(const WeightState& state, const nn::Weight& w, const Tensor& t) {
  return lies_as_weight(state, w) ? nn::to_file(w, t) : t;
}

// A tensor of a state file that is no weight, of this type. Throws Error.
Tensor load_kept(const io::TensorFile& file, const std::string& name, const Type& type) {
  const Tensor t = file.load(name);
  require(t.type() == type, "checkpoint: '", name, "' must be ", type, " (", t.type(), ")  ",
          file.files()[0]);
  check_finite(name, t, file.files()[0]);
  return t;
}

// With the averages where the model file does not have them as they are.
void write_state(const std::string& folder, const TrainState& s, const RunInfo& info,
                 bool averages) {
  std::vector<io::NamedTensor> out;
  for (const nn::Weight& w : s.weights) {
    if (!w.trained) continue;
    out.push_back({"raw." + w.name, nn::to_file(w, tensor(s, w.name))});
    for (const WeightState& state : states_of(*s.optimizer, w))
      out.push_back({state.name, in_file(state, w, tensor(s, state.name))});
    if (averages) out.push_back({"ema." + w.name, nn::to_file(w, tensor(s, "ema." + w.name))});
  }
  for (const RunNumber& n : kept_of_run(*s.optimizer)) out.push_back({n.name, tensor(s, n.name)});
  io::write_safetensors(state_file(folder, s.step), out, metadata_of(s, info, "state"));
}

// False of a state that opens and lacks the averages, which its model file has. What cannot be read
// may be all that there is of its step: going on from it says what is wrong with it.
bool counts_alone(const std::string& state) {
  try {
    const auto file = io::TensorFile::open(state);
    return kind_of(file) != "state" || file.metadata().contains(task_key);
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

bool is_moment(const std::map<std::string, std::string>& metadata, std::string_view tensor) {
  const auto kind = metadata.find("ebb.kind");
  return kind != metadata.end() && kind->second == "state" && is_optimizer_state(tensor);
}

// ---- files ---------------------------------------------------------------------------------

std::string model_file(const std::string& folder, int64_t step) {
  return (fs::path(folder) / file_name(model_prefix, step)).string();
}

std::string state_file(const std::string& folder, int64_t step) {
  return (fs::path(folder) / file_name(state_prefix, step)).string();
}

std::vector<int64_t> checkpoint_steps(const std::string& folder) {
  const std::vector<int64_t> models = steps_in(folder, model_prefix);
  std::vector<int64_t> out;
  for (const int64_t step : steps_in(folder, state_prefix))
    if (std::ranges::binary_search(models, step) || counts_alone(state_file(folder, step)))
      out.push_back(step);
  return out;
}

bool is_checkpoint_file(const std::string& name) {
  return step_of(name, model_prefix) || step_of(name, state_prefix);
}

HalfCheckpoints half_checkpoints(const std::string& folder) {
  HalfCheckpoints out;
  const std::vector<int64_t> steps = checkpoint_steps(folder);
  if (steps.empty()) return out;
  for (const int64_t s : steps_in(folder, model_prefix))
    if (s > steps.back()) out.models.push_back(model_file(folder, s));
  for (const int64_t s : steps_in(folder, state_prefix))
    if (!std::ranges::binary_search(steps, s)) out.states.push_back(state_file(folder, s));
  return out;
}

std::optional<int64_t> last_model(const std::string& folder) {
  const std::vector<int64_t> models = steps_in(folder, model_prefix);
  return models.empty() ? std::nullopt : std::optional(models.back());
}

int64_t last_checkpoint(const std::string& folder) {
  if (const std::vector<int64_t> steps = checkpoint_steps(folder); !steps.empty())
    return steps.back();
  const std::vector<int64_t> models = steps_in(folder, model_prefix);
  const bool begun = fs::exists(fs::path(folder) / "metrics.jsonl");
  require(begun || !models.empty(), "resume: there is no run in the folder; without --resume one ",
          "begins  ", folder);
  const std::vector<int64_t> states = steps_in(folder, state_prefix);
  require(!models.empty() || states.empty(), "resume: the state's model file is missing; ",
          "--overwrite deletes the state and starts anew  ",
          states.empty() ? folder : model_file(folder, states.back()));
  require(!models.empty(),
          "resume: the run ended before its first checkpoint, so there is nothing ",
          "to go on from; --overwrite starts anew, and a smaller --checkpoint-every saves sooner  ",
          folder);
  fail("resume: the model's training state is missing; another --out keeps the model, ",
       "--overwrite deletes it and starts anew  ", state_file(folder, models.back()));
}

namespace {

// What is wrong with `write`; "": nothing.
std::string fault_of(const std::function<void()>& write) {
  try {
    write();
    return "";
  } catch (const std::exception& e) {
    return e.what();
  }
}

// A model file of another form is no part of the state: each is good without the other, and is
// written though the other cannot be. The state first, as the room may be enough for one alone:
// the model can be made from it, and it cannot from the model.
void write_each(const std::string& folder, const TrainState& state, const Saving& how) {
  const std::string model = model_file(folder, state.step);
  const std::string beside = state_file(folder, state.step);
  const std::string of_state = fault_of([&] { write_state(folder, state, how.info, true); });
  const std::string of_model =
      fault_of([&] { how.write_model(model, state, other_metadata(state)); });
  if (of_state.empty() && of_model.empty()) return;
  require(!of_state.empty(), of_model, "; the state of step ", state.step,
          " is saved, from which --resume goes on  ", beside);
  require(!of_model.empty(), of_state, "; the model of step ", state.step,
          " is saved, without its state  ", model);
  fail(of_state, "; nor can its model file be written: ", of_model);
}

void remove_all_but(int64_t keep, const std::string& folder, int64_t step) {
  const std::vector<int64_t> steps = checkpoint_steps(folder);
  for (size_t i = 0; keep > 0 && i + static_cast<size_t>(keep) < steps.size(); ++i)
    if (steps[i] != step) remove_checkpoint(folder, steps[i]);
}

}  // namespace

std::string save_checkpoint(const std::string& folder, const TrainState& state, const Saving& how) {
  const std::string path = model_file(folder, state.step);
  const std::string beside = state_file(folder, state.step);
  const bool had_state = fs::exists(beside);
  if (how.write_model) {
    write_each(folder, state, how);
    remove_all_but(how.keep, folder, state.step);
    return path;
  }
  // In this order: what a kill leaves in between is no model, which a user may have kept.
  write_state(folder, state, how.info, false);
  try {
    write_model(folder, state, how.info);
  } catch (...) {
    // half a checkpoint would only take room that is short
    std::error_code ignored;
    if (!had_state) fs::remove(beside, ignored);
    throw;
  }
  remove_all_but(how.keep, folder, state.step);
  return path;
}

std::string missing_room(const std::string& folder, const nn::Weights& weights,
                         const Optimizer& optimizer) {
  nn::Weights saved = weights;
  std::erase_if(saved, [](const nn::Weight& w) { return !w.trained; });
  const auto bytes = static_cast<uintmax_t>(training_bytes(saved, optimizer));
  std::error_code unknown;
  const uintmax_t room = fs::space(folder, unknown).available;
  if (unknown || bytes <= room) return "";
  return str("the disk has too little room: a checkpoint takes at least ", bytes, " bytes, and ",
             room, " are free  ", folder);
}

namespace {

io::TensorFile open_state(const std::string& folder, int64_t step) {
  const std::string path = state_file(folder, step);
  auto file = io::TensorFile::open(path);
  require(kind_of(file) == "state", "checkpoint: not a training state of ebb  ", path);
  const int64_t recorded = recorded_step(file);
  require(recorded == step, "checkpoint: the file's name and its step (", recorded,
          ") must agree  ", path);
  return file;
}

ModelFileInfo info_in(const io::TensorFile& file) {
  ModelFileInfo out{.step = recorded_step(file)};
  out.run = {.model = entry(file, "ebb.model"),
             .model_config = entry(file, "ebb.model_config"),
             .diffusion_config = entry(file, "ebb.diffusion_config"),
             .train_config = entry(file, "ebb.train_config"),
             .class_names = recorded_classes(file)};
  if (const auto task = file.metadata().find(task_key); task != file.metadata().end())
    out.run.task = task->second;
  return out;
}

// Of a model file in another form, which may have been moved, the state says what it is of.
ModelFileInfo model_info(const std::string& folder, int64_t step) {
  const std::string path = model_file(folder, step);
  const bool moved = !fs::exists(path);
  auto info = moved ? std::nullopt : read_model_info(path);
  if (!info) {
    const auto state = open_state(folder, step);
    const bool same = moved || recorded_step(io::TensorFile::open(path)) == step;
    if (state.metadata().contains(task_key) && same) info = info_in(state);
  }
  require(info && info->step == step, "checkpoint: must be of step ", step, "  ", path);
  return *info;
}

// The newest of `steps` before `damaged` for which open() throws no Error.
std::optional<int64_t> intact_before(int64_t damaged, const std::vector<int64_t>& steps,
                                     const auto& open) {
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (*step >= damaged) continue;
    try {
      open(*step);
      return *step;
    } catch (const Error&) {
      continue;
    }
  }
  return {};
}

// What f(step) gives of the newest checkpoint. An Error that is of that checkpoint alone says how
// to go on from an older one, of which f gives something.
auto from_last_checkpoint(const std::string& folder, const auto& f) {
  const int64_t last = last_checkpoint(folder);
  try {
    return f(last);
  } catch (const Error& e) {
    const auto older = intact_before(last, checkpoint_steps(folder), [&](int64_t step) {
      open_state(folder, step);
      model_info(folder, step);
      f(step);
    });
    if (!older) throw;
    std::string files;
    for (const fs::path file : {model_file(folder, last), state_file(folder, last)})
      if (fs::exists(file)) files += str(files.empty() ? "" : " and ", file.filename().string());
    fail(e.what(), "; the checkpoint of step ", *older, " is whole: move ", files,
         " to another folder to go on from there");
  }
}

}  // namespace

uint64_t checkpoint_hash(const std::string& folder, int64_t step) {
  constexpr int64_t samples = 256, bytes = 4096;
  std::string all;
  for (const std::string& path : {model_file(folder, step), state_file(folder, step)}) {
    std::ifstream in(path, std::ios::binary | std::ios::ate);
    const auto size = static_cast<int64_t>(in.tellg());
    require(in.good(), "checkpoint: cannot read it  ", path);
    all += str(size, ' ');
    const int64_t last = std::max<int64_t>(size - bytes, 0);
    for (int64_t i = 0; i < samples; ++i) {
      std::array<char, bytes> block;
      in.seekg(last * i / (samples - 1));
      const auto count = static_cast<std::streamsize>(std::min(size, bytes));
      require(in.read(block.data(), count).good(), "checkpoint: cannot read it  ", path);
      all.append(block.data(), static_cast<size_t>(count));
    }
  }
  return fnv1a(all);
}

ModelFileInfo last_model_info(const std::string& folder) {
  return from_last_checkpoint(folder, [&](int64_t last) { return model_info(folder, last); });
}

TrainState load_state(const std::string& folder, nn::Weights weights, const NamedTensors& given,
                      const Optimizer& optimizer) {
  check_training_memory(weights, optimizer);
  return from_last_checkpoint(folder, [&](int64_t step) {
    const auto file = open_state(folder, step);
    model_info(folder, step);
    TrainState s{.weights = weights, .step = step, .optimizer = &optimizer};
    const bool own = !file.metadata().contains(task_key);
    s.tensors = own ? load_model_weights(model_file(folder, step), s.weights) : given;
    for (const nn::Weight& w : s.weights) {
      if (!w.trained) {
        tensor(s, w.name);
        continue;
      }
      const auto load = [&](const std::string& name) {
        const Tensor t = nn::from_file(w, file.load(name));
        check_finite(name, t, state_file(folder, step));
        return t;
      };
      s.tensors["ema." + w.name] = own ? s.tensors.at(w.name) : load("ema." + w.name);
      s.tensors[w.name] = load("raw." + w.name);
      for (const WeightState& state : states_of(optimizer, w))
        s.tensors[state.name] =
            lies_as_weight(state, w) ? load(state.name) : load_kept(file, state.name, state.type);
    }
    for (const RunNumber& n : kept_of_run(optimizer))
      s.tensors[n.name] = load_kept(file, n.name, {DType::f32, {}});
    return s;
  });
}

std::string older_model(const std::string& folder, const std::string& damaged,
                        const std::function<void(const std::string& file)>& load) {
  const auto step = step_of(fs::path(damaged).filename().string(), model_prefix);
  if (!fs::is_directory(folder) || !step) return "";
  const auto older = intact_before(*step, steps_in(folder, model_prefix), [&](int64_t s) {
    model_info(folder, s);
    load(model_file(folder, s));
  });
  return older ? model_file(folder, *older) : "";
}

std::string find_model_file(const std::string& path, std::optional<int64_t> step) {
  require(fs::exists(path), "checkpoint: no such file or folder  ", path);
  if (!fs::is_directory(path)) {
    const std::string name = fs::path(path).filename().string();
    if (step_of(name, state_prefix))
      fail("checkpoint: is the state for resuming; give ", model_prefix,
           name.substr(state_prefix.size()), "  ", path);
    return path;
  }
  const std::vector<int64_t> steps = steps_in(path, model_prefix);
  require(!steps.empty(), "checkpoint: no ", model_prefix, "<step>", suffix, " in the folder  ",
          path);
  if (!step) return model_file(path, steps.back());
  require(std::binary_search(steps.begin(), steps.end(), *step), "checkpoint: none of step ", *step,
          " (there are ", steps.front(), " to ", steps.back(), ")  ", path);
  return model_file(path, *step);
}

std::optional<ModelFileInfo> read_model_info(const std::string& path) {
  const auto file = io::TensorFile::open(path);
  const std::string kind = kind_of(file);
  require(kind != "state", "checkpoint: is the state for resuming, not a model  ", path);
  if (kind.empty()) return {};
  return info_in(file);
}

}  // namespace ebb::train
