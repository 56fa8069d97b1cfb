// ebb train: trains a diffusion model on a folder of images.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/cli/command.h"
#include "base/error.h"
#include "base/json.h"
#include "diffusion/loss.h"
#include "io/file.h"
#include "models/model.h"
#include "train/augment.h"
#include "train/loop.h"

namespace ebb::cli {
namespace {

constexpr int64_t config_limit = 1 << 20;  // bytes

struct Options {
  train::TrainConfig train;
  DiffusionConfig diffusion;
  NamedModel model;
  std::string config_file;
  bool json = false;
  bool learn_sigma_given = false;
};

bool has_flag(const std::vector<std::string>& words, std::string_view flag) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& w) {
    return w == flag || w.starts_with(str(flag, '='));
  });
}

// The fields of the model's config that are the user's to set: the images and labels decide on the
// others.
std::vector<Field> model_fields(NamedModel& m) {
  std::vector<Field> out;
  for (const Field& f : m.config.fields())
    if (f.name != "image_size" && f.name != "in_channels" && f.name != "classes") out.push_back(f);
  return out;
}

// Every setting by name; a name that the model shares with the diffusion is the model's.
std::vector<Field> all_fields(Options& o) {
  std::vector<Field> out = fields_of(o.train);
  for (const auto& more : {model_fields(o.model), fields_of(o.diffusion)})
    for (const Field& f : more)
      if (std::none_of(out.begin(), out.end(), [&](const Field& g) { return g.name == f.name; }))
        out.push_back(f);
  return out;
}

// What the last checkpoint of the run says.
void read_run(Options& o, const std::string& folder) {
  const std::vector<int64_t> steps = train::checkpoint_steps(folder);
  require(!steps.empty(), "resume: no checkpoint in the folder  ", folder);
  const std::string file = train::model_file(folder, steps.back());
  const auto info = train::read_model_info(file);
  require(info.has_value(), "resume: the checkpoint does not say how it was trained  ", file);
  o.train = train::train_config_from_json(info->run.train_config, file);
  o.model = find_model(o.train.model);
  set_fields_json(o.model.config.fields(), info->run.model_config, file);
  set_fields_json(fields_of(o.diffusion), info->run.diffusion_config, file);
}

// The defaults that the flags start from: those of a run, of a config file, or the built-in ones.
void read_defaults(Options& o, const std::vector<std::string>& words) {
  const std::string model = flag_value(words, "--model");
  if (has_flag(words, "--resume")) {
    const std::string out = flag_value(words, "--out");
    read_run(o, out.empty() ? o.train.out : out);
    require(model.empty() || model == o.train.model, "resume: the run's model is ", o.train.model,
            " (--model ", model, ")");
    return;
  }
  const std::string file = flag_value(words, "--config");
  const std::string text = file.empty() ? "{}" : io::read_whole_file(file, "config", config_limit);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_object() && json.contains("model") && json["model"].is_string())
    o.train.model = json["model"];
  if (!model.empty()) o.train.model = model;
  o.model = find_model(o.train.model);
  const std::string name = o.train.model;
  set_fields_json(all_fields(o), text, file.empty() ? "config" : file);
  o.train.model = name;
}

// One switch for the network's second half of channels and the loss that trains it.
void agree_on_learn_sigma(Options& o) {
  for (const Field& f : o.model.config.fields()) {
    if (f.name != "learn_sigma") continue;
    bool& model = *std::get<bool*>(f.ref);
    if (!o.diffusion.discrete() && !o.learn_sigma_given) model = false;
    o.diffusion.learn_sigma = model;
  }
}

std::unique_ptr<train::Dataset> open_data(const train::TrainConfig& c) {
  require(!c.data.empty(), "train: give the images with --data");
  auto data = train::open_dataset(c.data, {.size = c.image_size,
                                           .channels = c.in_channels,
                                           .classes = c.labels,
                                           .limit = c.limit,
                                           .cache = c.cache,
                                           .threads = c.threads});
  for (const std::string& w : data->warnings()) std::fprintf(stderr, "data: %s\n", w.c_str());
  require(data->size() > 0, "train: there are no images  ", c.data);
  std::fprintf(stderr, "data: %lld images %s, %lld classes  %s\n",
               static_cast<long long>(data->size()), str(data->image_shape()).c_str(),
               static_cast<long long>(data->classes()), c.data.c_str());
  return data;
}

train::TrainJob make_job(Options& o, const train::Dataset& data) {
  const Shape image = data.image_shape();
  CommonConfig& common = o.model.config.common();
  require(image[0] == image[1], "train: images must be square; give --image-size  ", image);
  common.image_size = image[0];
  common.in_channels = image[2];
  common.classes = data.classes();
  agree_on_learn_sigma(o);
  ebb::check(o.diffusion);
  const int64_t part = o.train.batch / o.train.accumulation;
  train::TrainJob job{.config = o.train};
  job.loss = loss_graph(o.diffusion, network_of(*o.model.model, o.model.config),
                        {.batch = part,
                         .image = image,
                         .labels = common.classes > 0,
                         .augment = o.train.augment > 0 ? train::augment_labels : 0});
  job.info = {.model = o.model.model->name,
              .model_config = fields_json(o.model.config.fields()),
              .diffusion_config = fields_json(fields_of(o.diffusion)),
              .train_config = {},
              .class_names = data.class_names()};
  job.batches = train::dataset_batches(data, o.train);
  job.hooks.log = [](std::string_view line) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  };
  return job;
}

int run(Options& o) {
  train::check(o.train);
  const auto data = open_data(o.train);
  const std::string& device = o.train.device;
  const Context context =
      open_context(device == "auto" ? "cpu" : device, {.threads = o.train.threads});
  const train::TrainResult r = train::train(make_job(o, *data), context);
  if (o.json) {
    const nlohmann::ordered_json j = {
        {"steps", r.step}, {"loss", r.loss}, {"signal", r.signal}, {"checkpoint", r.checkpoint}};
    std::puts(j.dump().c_str());
  }
  constexpr int signal_base = 128;
  return r.signal == 0 ? 0 : signal_base + r.signal;
}

std::function<int()> bind(CLI::App& app, const std::vector<std::string>& words) {
  const auto o = std::make_shared<Options>(Options{.model = find_model("tiny")});
  read_defaults(*o, words);
  o->learn_sigma_given = has_flag(words, "--learn-sigma") || has_flag(words, "--learn_sigma");
  add_flags(app, all_fields(*o));
  app.add_option("--config", o->config_file,
                 "JSON file of settings by these names; flags come on top")
      ->type_name("FILE");
  app.add_flag("--json", o->json, "print one JSON object on standard output at the end");
  return [o] { return run(*o); };
}

}  // namespace

const Command& train() {
  static const Command c{
      "train", "train a diffusion model on images",
      "ebb train --data /usr/share/datasets/fashion-mnist --model tiny --out out/demo --minutes 4",
      bind};
  return c;
}

}  // namespace ebb::cli
