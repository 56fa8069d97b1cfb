// ebb train: a model from images.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "apps/cli/command.h"
#include "apps/cli/ranks.h"
#include "apps/cli/terminal.h"
#include "apps/cli/train_checkpoint.h"
#include "apps/cli/train_data.h"
#include "apps/cli/train_run.h"
#include "apps/cli/train_settings.h"
#include "base/choices.h"
#include "base/error.h"
#include "base/json.h"
#include "base/names.h"
#include "diffusion/loss.h"
#include "io/image.h"
#include "pipeline/pipeline.h"
#include "train/augment.h"
#include "train/loop.h"
#include "train/run_folder.h"
#include "train/stop.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;
using train::TrainConfig;

// The three configs of a run. The network's size, channels and classes are the data's.
struct Options {
  TrainConfig train{.validation = "auto"};
  DiffusionConfig diffusion;
  ModelConfig network = find_model("tiny").config;
  const Model* model = nullptr;
  std::string config;  // a JSON file
  bool json = false;
  int64_t threads = 0;  // of this process: own_threads()
  bool learn_sigma_given = false;
  nlohmann::ordered_json network_section;  // of the file
  std::string data_text;                   // what is trained on, for people
  std::vector<std::string> class_names;    // of the data
  std::shared_ptr<ranks::TcpGroup> ranks;  // null: this process trains alone
  train::Split split() const { return train::split_of(train, ranks.get()); }
  FieldTexts before;  // fixed_settings() of the run that goes on
  TrainConfig trained_before;
  std::vector<std::string> given;  // fields, by flags and one by one in the config
  int64_t images = 0;              // of the data
  void fields(auto&& f) {
    f("config", config, "JSON file with any of these settings; flags come before it");
    f("json", json, "print one JSON object on standard output at the end");
  }
};

// Network fields that are no flags: another flag, or the data, decides them.
struct Decided {
  std::string_view field, by;
};
constexpr Decided decided_elsewhere[] = {{"image_size", "size"},
                                         {"in_channels", "channels"},
                                         {"classes", "classes"},
                                         {"learn_sigma", "learn_sigma"},
                                         {"augment", "augment"}};

const Decided* find_decided(std::string_view name) {
  const auto* const found = std::ranges::find(decided_elsewhere, name, &Decided::field);
  return found == std::end(decided_elsewhere) ? nullptr : found;
}

bool has_field(const std::vector<Field>& fields, const std::string& name) {
  return std::any_of(fields.begin(), fields.end(), [&](const Field& f) { return f.name == name; });
}

// Those that share their name with another setting become network_<name>.
std::vector<Field> network_fields(Options& o) {
  std::vector<Field> out = o.network.fields();
  std::erase_if(out, [](const Field& f) { return find_decided(f.name) != nullptr; });
  for (Field& f : out)
    if (has_field(fields_of(o.train), f.name) || has_field(fields_of(o.diffusion), f.name))
      f.name = "network_" + f.name;
  return out;
}

// ---- settings ------------------------------------------------------------------------------

// One setting of a file: a section of all three, or a field of any of them.
void apply_setting(Options& o, const std::string& key, const nlohmann::ordered_json& value,
                   const std::string& file) {
  const std::vector<Field> train = fields_of(o.train), diffusion = fields_of(o.diffusion),
                           network = network_fields(o);
  const bool section = value.is_object() && value.contains("learn_sigma");
  o.learn_sigma_given = o.learn_sigma_given || key == "learn_sigma" || section;
  if (key == "train" || key == "diffusion") {
    set_fields_json(key == "train" ? train : diffusion, value.dump(), file);
    return;
  }
  if (key == "network") {
    set_fields_json(o.network.fields(), value.dump(), file);
    o.network_section = value;
    return;
  }
  const std::string one = nlohmann::ordered_json{{key, value}}.dump();
  for (const auto& fields : {train, diffusion, network})
    if (has_field(fields, key)) {
      set_fields_json(fields, one, file);
      o.given.push_back(key);
      return;
    }
  if (const Decided* d = find_decided(key))
    fail(file, ": the data decide '", key, "'; '", d->by, "' says how they are read");
  std::vector<std::string> known{"train", "diffusion", "network"};
  for (const auto& fields : {train, diffusion, network})
    for (const Field& f : fields) known.push_back(f.name);
  fail(file, ": unknown setting '", key, "'", suggestion(key, known));
}

void choose_model(Options& o, const std::string& name) {
  const NamedModel m = find_model(name);
  o.train.model = m.name;
  o.model = m.model;
  o.network = m.config;
  o.diffusion = usual_diffusion(*m.model, m.config);
}

// Throws Error, with the file, for sizes in it that no network has.
void check_sizes_of(const Options& o, const std::string& file) {
  try {
    check_sizes(*o.model, o.network);
  } catch (const Error& e) {
    fail(e.what(), "  ", file);
  }
}

// A setting of training, as a flag or as a text of a file has it; "" if neither does.
std::string given_setting(const std::string& name, const nlohmann::ordered_json& file,
                          const std::vector<std::string>& words) {
  std::string given = flag_value(words, flag_of(name));
  if (!given.empty()) return given;
  for (const auto* at : {&file, file.contains("train") ? &file["train"] : &file})
    if (at->is_object() && at->contains(name) && (*at)[name].is_string())
      given = (*at)[name].get<std::string>();
  return given;
}

// The model comes first, as the other settings are its; then what the optimiser's rate usually is.
void read_settings(Options& o, const std::string& file, const std::vector<std::string>& words) {
  nlohmann::ordered_json j;
  if (!file.empty()) j = read_config(file);
  const std::string named = given_setting("model", j, words);
  const std::string model = named.empty() ? o.train.model : named;
  choose_model(o, model);
  const std::string optimizer = given_setting("optimizer", j, words);
  o.train.lr = train::usual_rate(optimizer.empty() ? o.train.optimizer : optimizer,
                                 given_setting("optimizer_options", j, words), o.train.lr);
  for (const auto& [key, value] : j.items()) apply_setting(o, key, value, file);
  check_sizes_of(o, file);
  o.train.model = find_model(model).name;
}

// What the weights of a run were made for, by field and text.
FieldTexts fixed_settings(Options& o) {
  FieldTexts out;
  for (const Field& f : fields_of(o.diffusion)) out.emplace_back(f.name, field_text(f));
  for (const Field& f : network_fields(o)) out.emplace_back(f.name, field_text(f));
  out.emplace_back("augment", o.train.augment > 0 ? "above 0" : "0");
  out.emplace_back("optimizer", o.train.optimizer);
  out.emplace_back("optimizer_options", train::fixed_options(o.train));
  return out;
}

// Throws Error if flags ask for another diffusion or network than the run's.
void check_unchanged(Options& o) {
  const FieldTexts now = fixed_settings(o);
  for (size_t i = 0; i < o.before.size(); ++i) {
    const auto& [name, was] = o.before[i];
    require(now[i].second == was, "resume: the run's ", name, " is ", was, " and stays (",
            flag_of(name), " ", now[i].second, ")");
  }
}

// What the last checkpoint of the run says. Flags can change how it goes on, not what it trains.
void read_run(Options& o, const std::string& folder, const std::string& model_flag) {
  train::check_run_folder(folder, true, false);  // another process may train in it
  const train::ModelFileInfo info = train::last_model_info(folder);
  const std::string file = train::model_file(folder, info.step);
  o.train = train::train_config_from_json(info.run.train_config, file);
  o.trained_before = o.train;
  say_edits(folder, info.run.train_config);
  const std::string model = o.train.model;
  require(model_flag.empty() || find_model(model_flag).name == model, "resume: the run's model is ",
          model, " (--model ", model_flag, ")");
  choose_model(o, model);
  const std::string missing =
      join_texts(set_known_fields(o.network.fields(), info.run.model_config, file),
                 set_known_fields(fields_of(o.diffusion), info.run.diffusion_config, file));
  if (!missing.empty()) say_once("resume: " + missing_text(missing));
  check_sizes_of(o, file);
  o.before = fixed_settings(o);
}

// Throws Error for --image-size and its like.
void check_no_decided(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (!word.starts_with("--")) continue;
    std::string name = word.substr(2, word.find('=') - 2);
    std::ranges::replace(name, '-', '_');
    const Decided* d = find_decided(name);
    require(!d || d->by == name, "train: the data decide ", word.substr(0, word.find('=')), "; --",
            d ? d->by : "", " says how they are read");
  }
}

// The values that flags start from.
void read_defaults(Options& o, const std::vector<std::string>& words) {
  const std::string model = flag_value(words, "--model"), out = flag_value(words, "--out");
  const std::string config = flag_value(words, "--config");
  if (!is_on(words, "--resume")) {
    read_settings(o, config, words);
    require(!o.train.resume, "config: resume is a flag, not a setting  ", config);
    return;
  }
  require(config.empty(),
          "resume: the run has its own settings, --config cannot be given as well (", config, ")");
  read_run(o, out.empty() ? o.train.out : out, model);
}

// ---- the job -------------------------------------------------------------------------------

bool builds(const Options& o, int64_t size) {
  ModelConfig c = o.network;
  c.common().image_size = size;
  try {
    check(*o.model, c);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Says which settings of the file's network were not followed.
void report_overruled(Options& o) {
  for (const Field& f : o.network.fields()) {
    if (!find_decided(f.name) || !o.network_section.contains(f.name)) continue;
    const std::string asked = o.network_section[f.name].dump(), is = field_text(f);
    if (asked != is)
      say_once(str("config: network.", f.name, " follows from the data and other settings (", is,
                   ", not ", asked, ")"));
  }
}

// Throws Error if the network cannot be built; names the next smaller size of images that it takes.
void check_network(const Options& o) {
  const int64_t size = o.network.common().image_size;
  try {
    check(*o.model, o.network);
  } catch (const Error& e) {
    int64_t smaller = size - 1;
    while (smaller > 0 && !builds(o, smaller)) --smaller;
    if (smaller == 0) throw;
    fail(e.what(), "; --size ", smaller, " crops and resizes the images  ", o.train.data);
  }
}

// Throws Error for settings of the diffusion that cannot be or that it does not have.
void resolve_diffusion(Options& o) {
  resolve(o.diffusion);
  // a model that usually learns variances does not with a diffusion that has none to learn
  if (!o.diffusion.discrete() && !o.learn_sigma_given) o.diffusion.learn_sigma = false;
  check(o.diffusion);
  for (const std::string& name : o.given)
    if (name != "learn_sigma")  // off is right for all; check() refuses it where it is wrong
      check_applies(name, o.diffusion.precond);
}

void fit_network(Options& o, const train::Dataset& data) {
  const Shape s = data.image_shape();
  require(s[0] == s[1], "train: images must be square (", size_text(s),
          "); --size crops and resizes them  ", o.train.data);
  CommonConfig& c = o.network.common();
  require(!o.train.resume ||
              (c.image_size == s[0] && c.in_channels == s[2] && c.classes == data.classes()),
          "resume: the data is another (", size_text(s), " in ", data.classes(),
          " classes; the run had ", size_text({c.image_size, c.image_size, c.in_channels}), " in ",
          c.classes, ")  ", o.train.data);
  c.image_size = s[0];
  c.in_channels = s[2];
  c.classes = data.classes();
  require(c.classes > 0 || o.diffusion.label_dropout == 0 ||
              std::ranges::find(o.given, "label_dropout") == o.given.end(),
          "train: --label-dropout has no effect on images without classes  ", o.train.data);
  for (const Field& f : o.network.fields()) {
    if (f.name == "learn_sigma") **std::get_if<bool*>(&f.ref) = o.diffusion.learn_sigma;
    if (f.name == nn::augment_labels && !o.train.resume)
      **std::get_if<int64_t*>(&f.ref) = o.train.augment > 0 ? train::augment_labels : 0;
  }
  require(o.train.augment == 0 || has_field(o.network.fields(), "augment"), "train: model ",
          o.model->name, " takes no augmentation labels (--augment ", o.train.augment, ")");
  report_overruled(o);
  check_network(o);
}

// A grid of the averaged weights' samples: a row a class, at most 10 of them.
void write_grid(const Options& o, const Context& context, const train::TrainState& state) {
  WeightStore::Weights weights;
  for (const nn::Weight& w : state.weights)
    weights[w.name] = stored_tensor(state.tensors.at(w.trained ? "ema." + w.name : w.name));
  const LoadedModel m{.model = o.model,
                      .config = o.network,
                      .diffusion = o.diffusion,
                      .class_names = o.class_names,
                      .weights = std::make_shared<WeightStore>(std::move(weights)),
                      .step = state.step};
  const int64_t classes = o.network.common().classes, rows = std::clamp<int64_t>(classes, 4, 10);
  constexpr int64_t columns = 8;
  GenerateRequest request;
  for (int64_t i = 0; i < rows * columns; ++i)
    request.classes.push_back(classes > 0 ? i / columns % classes : -1);
  GenerateOptions options;
  options.dtype = o.train.dtype;
  const Tensor pixels = to_pixels(generate(m, request, options, context).images);
  std::vector<Tensor> images;
  for (int64_t i = 0; i < pixels.shape()[0]; ++i) images.push_back(image_at(pixels, i));
  std::vector<std::string> labels;
  for (int64_t r = 0; classes > 0 && r < rows; ++r)
    labels.push_back(class_labels(m)[static_cast<size_t>(r % classes)]);
  const std::string file = train::sample_file(o.train.out, state.step);
  io::make_folder(fs::path(file).parent_path().string(), "samples");
  io::write_png(file, io::image_grid(images, columns, 2),
                {{"step", std::to_string(state.step)},
                 {"model", o.train.model},
                 {"rows", strings_json(labels)}});
}

// What the network takes that the data give.
std::vector<nn::Condition> given_conditions(const Options& o) {
  std::vector<nn::Condition> out = o.model->conditions(o.network);
  std::erase_if(out, [&](const nn::Condition& c) {
    return c.name == nn::augment_labels && o.train.augment == 0;
  });
  return out;
}

Graph loss_of(const Options& o, bool dropout) {
  const CommonConfig& c = o.network.common();
  return loss_graph(
      o.diffusion, network_of(*o.model, o.network),
      {.batch = o.train.batch / std::max<int64_t>(o.train.accumulation, 1) / o.split().ranks,
       .image = {c.image_size, c.image_size, c.in_channels},
       .conditions = given_conditions(o),
       .dropout = dropout});
}

train::TrainJob make_job(const Options& o, const train::HeldOut& data, const Context& context) {
  train::TrainJob job{.config = o.train, .info = {}, .loss = loss_of(o, true), .batches = {}};
  job.weights = weights_of(*o.model, o.network);
  Options copy = o;
  job.info = {.model = o.model->name,
              .model_config = fields_json(copy.network.fields()),
              .diffusion_config = fields_json(fields_of(copy.diffusion)),
              .train_config = {},
              .class_names = o.class_names};
  job.data = o.data_text;
  job.images = o.images;
  if (data.validation) job.data += str("; ", data.note);
  const TrainConfig loading = on_threads(o.train, o.threads, train::most_loaders);
  job.batches = train::dataset_batches(*data.training, loading, o.split());
  job.batches_on_any_thread = true;
  if (data.validation) {
    job.validation = train::validation_of(*data.validation, o.train, o.split());
    job.validation->loss = loss_of(o, false);
  }
  job.hooks.log = say_once;
  job.hooks.json = o.json;
  job.ranks = o.ranks.get();
  job.hooks.sample = [&o, &context](const train::TrainState& s, const auto&) {
    write_grid(o, context, s);
  };
  return job;
}

// Throws Error for a --size that the network cannot take, before images are read and resized.
void check_size(Options o) {
  if (o.train.size == 0) return;
  int64_t& size = o.network.common().image_size;
  require(!o.train.resume || size == o.train.size, "resume: the run's images are ", size, "x", size,
          " and stay (--size ", o.train.size, ")");
  size = o.train.size;
  check_network(o);
}

int run_rank(Options& o) {
  share_seed(o.train.seed, o.ranks.get());
  if (o.train.resume) say_changes(fields_of(o.trained_before), fields_of(o.train));
  const bool tells_json = o.json && !is_quiet();
  const auto open = [&] {
    const train::EndOnSignal opening(is_quiet() ? "" : "train: interrupted; nothing was written",
                                     tells_json);
    o.threads = own_threads(o.train.threads, o.ranks.get());
    return open_device({.device = o.train.device, .tune = o.train.tune, .threads = o.threads},
                       o.ranks.get());
  };
  const Context context = open();
  int signal = 0;
  const auto data = open_train_data(on_threads(o.train, o.threads), tells_json, signal);
  if (!data) return signal_exit + signal;
  o.data_text = data->text;
  o.class_names = data->class_names;
  o.images = data->count;
  if (o.train.resume) say_other_count(o.train.out, o.images);
  fit_network(o, *data->images.training);
  return run_training(make_job(o, data->images, context), context, tells_json);
}

// Whether the network takes nothing but what data give: no text, and no other images.
bool is_trained(const Model& m, const ModelConfig& config) {
  return std::ranges::all_of(m.conditions(config), [](const nn::Condition& c) {
    return c.name == nn::class_id || c.name == nn::augment_labels;
  });
}

int run(Options& o) {
  require(!o.train.data.empty(), "train: --data is missing");
  check_unchanged(o);
  check(o.train);
  check_given(o.train, o.given);
  require(is_trained(*o.model, o.network), "train: --model must name a network of images and ",
          "classes alone, or a checkpoint file, which `ebb create` makes with drawn weights (got ",
          o.train.model, ", which reads more)");
  check_sizes(*o.model, o.network);
  check_size(o);
  if (!is_quiet()) train::check_run_folder(o.train.out, o.train.resume, o.train.overwrite);
  if (const auto code = start_copies(o.train.gpus, o.train.device)) return *code;
  o.ranks = join_group();
  return run_ranked(o.ranks.get(), [&o] { return run_rank(o); });
}

// Models and presets that can be trained, for --model.
std::string model_list() {
  std::string out =
      "--model FILE (or a folder of diffusers) trains that checkpoint on pictures with captions; "
      "its "
      "flags: ebb train --model FILE --help-all\nmodels (--model), each with its presets:";
  for (const Model* m : all_models()) {
    if (m->kind != ModelKind::denoiser || !is_trained(*m, find_model(m->name).config)) continue;
    out += "\n  " + m->name;
    for (const Preset& p : m->presets)
      if (p.name != m->name && is_trained(*m, p.config)) out += " " + p.name;
  }
  return out;
}

std::function<int()> bind(CLI::App& app, const std::vector<std::string>& words) {
  if (trains_checkpoint(words)) return bind_checkpoint_training(app, words);
  add_help_paragraph(app, model_list());
  check_no_decided(words);
  const auto o = std::make_shared<Options>();
  read_defaults(*o, words);
  o->learn_sigma_given = o->learn_sigma_given || is_on(words, "--learn-sigma");
  add_flags(app, fields_of(*o));
  add_flags(app, fields_of(o->train), "Training");
  describe_flag(app, "--model",
                "name of a model or preset, of which a network is trained from scratch; or a "
                "checkpoint of text to image, a file or folder, whose settings are others: "
                "--model FILE --help-all");
  add_flags(app, fields_of(o->diffusion), "Diffusion");
  add_flags(app, network_fields(*o), "Network (" + o->model->name + ")");
  check_no_checkpoint_flags(app, words);
  return [o, &app] {
    for (std::string& name : given_fields(app)) o->given.push_back(std::move(name));
    require(!o->config.empty() || std::ranges::count(o->given, "config") == 0,
            "train: --config must name a file (got '')");
    resolve(o->train);
    resolve_diffusion(*o);
    return run(*o);
  };
}

}  // namespace

const Command& train() {
  static const Command c{
      "train",
      "train a model on images; Ctrl-C saves and ends (exit code 130), --resume goes on",
      "ebb train --data photos/ --size 32 --out run --minutes 30 --flip --sample-every 500",
      bind,
      {"data", "size", "model", "out", "steps", "minutes", "batch", "lr", "sample_every",
       "resume"}};
  return c;
}

}  // namespace ebb::cli
