#include "apps/cli/train_checkpoint.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/command.h"
#include "apps/cli/ranks.h"
#include "apps/cli/terminal.h"
#include "apps/cli/train_run.h"
#include "apps/cli/train_settings.h"
#include "base/choices.h"
#include "base/error.h"
#include "base/json.h"
#include "diffusion/field_use.h"
#include "diffusion/solver/run.h"
#include "pipeline/checkpoint_training.h"
#include "pipeline/finetune_metadata.h"
#include "pipeline/held_out_pictures.h"
#include "train/run_folder.h"
#include "train/stop.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  FinetuneRequest request;
  FinetuneConfig before;  // of the run that goes on
  train::TrainConfig trained_before;
  FieldTexts diffusion;                    // flags
  std::vector<std::string> given;          // fields, by flags
  std::shared_ptr<ranks::TcpGroup> ranks;  // null: this process trains alone
  bool resumes = false;
  bool json = false;
  void fields(auto&& f) { f("json", json, "print one JSON object on standard output at the end"); }
};

// Settings of training that say nothing here.
constexpr std::string_view without_part[] = {"size", "channels", "classes", "limit", "augment"};
// Settings with which a run may go on in another way: of its files, and of what hashes tell. All
// others say which weights there are, or what is in which batch.
constexpr std::string_view changeable[] = {
    "names",          "save_dtype",     "text_encoder",    "vae",
    "variant",        "cache_dir",      "text_lr",         "disc_lr",
    "control_images", "sample_prompts", "sample_controls", "sample_pictures"};
constexpr std::string_view kept_of_training[] = {"batch", "accumulation", "seed",
                                                 "flip",  "optimizer",    "validation"};

bool is_in(const auto& names, std::string_view name) {
  return std::ranges::find(names, name) != std::end(names);
}

std::vector<Field> train_fields(train::TrainConfig& c) {
  std::vector<Field> out = fields_of(c);
  std::erase_if(out, [](const Field& f) { return is_in(without_part, f.name); });
  for (Field& f : out) {
    if (f.name == "data")
      f.help =
          "pictures with captions: folders or tar shards, parted by ';', each perhaps with "
          "repeats: \"photos:10;styles.tar\"";
    if (f.name == "model") f.help = "the checkpoint: a file, or a folder of diffusers";
    if (f.name == "lr")
      f.help =
          "learning rate; without it 1e-4 for adapters, 1e-5 for networks, 5e-3 for embeddings, "
          "or what the optimiser has of its own: " +
          train::own_rates_help();
    if (f.name == "batch") f.help = "pictures per step, of all GPUs together";
    if (f.name == "validation")
      f.help =
          "pictures that are not trained on, to measure the loss on: so many of --data, a share of "
          "them like 5%, auto (5%, at most 256, none of less than 100) or off; or others, as "
          "--data names them";
  }
  return out;
}

std::vector<Field> finetune_fields(FinetuneConfig& c) {
  std::vector<Field> out = fields_of(c);
  std::erase_if(out, [](const Field& f) { return f.name.starts_with("base"); });
  return out;
}

// What published recipes use; adapters are drawn, and take larger steps.
train::TrainConfig usual_settings(const std::vector<std::string>& words) {
  const std::string adapter = flag_value(words, "--adapter");
  const bool adapts = !adapter.empty() && adapter != "none";
  train::TrainConfig c;
  c.model.clear();  // there is no usual one
  c.batch = 1;
  c.lr = flag_value(words, "--train") == "embedding" ? 5e-3 : adapts ? 1e-4 : 1e-5;
  const std::string optimizer = flag_value(words, "--optimizer");
  c.lr = train::usual_rate(optimizer.empty() ? c.optimizer : optimizer,
                           flag_value(words, "--optimizer-options"), c.lr);
  c.weight_decay = 0.01;
  c.ema_halflife = 0;
  c.checkpoint_every = 500;
  return c;
}

void read_run(Options& o, const std::string& folder) {
  train::check_run_folder(folder, true, false);
  const train::ModelFileInfo info = train::last_model_info(folder);
  const std::string file = train::state_file(folder, info.step);
  o.request.train = train::train_config_from_json(info.run.train_config, file);
  set_fields_json(fields_of(o.request.config), info.run.model_config, file);
  o.before = o.request.config;
  o.trained_before = o.request.train;
  DiffusionConfig d;
  set_fields_json(fields_of(d), info.run.diffusion_config, file);
  // of whatever value: the checkpoint's own may be another
  for (const Field& f : fields_of(d))
    if (is_offered(f.name, Overrides::training) && applies(f.name, d.precond))
      o.request.diffusion.emplace_back(f.name, field_text(f));
  o.resumes = true;
}

void check_kept(Options& o) {
  if (!o.resumes) return;
  const auto compare = [](const std::vector<Field>& before, const std::vector<Field>& now,
                          const auto& stays) {
    for (size_t i = 0; i < now.size(); ++i) {
      const std::string was = field_text(before[i]), is = field_text(now[i]);
      require(is == was || !stays(now[i].name), "resume: the run's ", now[i].name, " is ",
              was.empty() ? "empty" : was, " and stays (", flag_of(now[i].name), " ", is, ")");
    }
  };
  compare(finetune_fields(o.before), finetune_fields(o.request.config),
          [](const std::string& name) { return !is_in(changeable, name); });
  // of pictures with another name a hash tells whether they are the same
  const bool named =
      names_pictures(o.trained_before.validation) && names_pictures(o.request.train.validation);
  compare(fields_of(o.trained_before), fields_of(o.request.train), [&](const std::string& name) {
    return is_in(kept_of_training, name) && !(named && name == "validation");
  });
  const std::string was = fixed_options(o.trained_before), is = fixed_options(o.request.train);
  require(was == is, "resume: the run's ", was, " of the optimiser stays (", is, ")");
  require(o.diffusion.empty(), "resume: the run's diffusion stays (",
          o.diffusion.empty() ? "" : flag_of(o.diffusion.front().first), ")");
}

// None if a signal came while data were read, with its number.
std::unique_ptr<CheckpointTraining> prepared(Options& o, const Context& context, int& signal) {
  const train::StopSignals signals(is_quiet() ? "" : stopping);
  o.request.say = say_once;
  o.request.between = [&] {
    if (signals.requested() != 0) throw Cancelled("train: stopped while data are prepared");
  };
  std::unique_ptr<ProgressLine> line;
  const char* shown = nullptr;
  o.request.progress = [&](const char* what, int64_t done, int64_t all) {
    if (is_quiet()) return;
    if (what != shown) {
      if (line) line->finish();
      line = std::make_unique<ProgressLine>(what);
      shown = what;
    }
    line->show(static_cast<double>(done) / static_cast<double>(all));
  };
  const auto finish = [&] {
    if (line) line->finish();
  };
  try {
    auto out = begin_training(o.request, context);
    finish();
    return out;
  } catch (const Cancelled&) {
    finish();
    signal = signals.requested();
    say_once(str("train: interrupted by signal ", signal,
                 " while data were prepared; what was encoded is kept in the cache"));
    return nullptr;
  }
}

void check_samples(const train::TrainConfig& c, const FinetuneConfig& f) {
  require(c.sample_every == 0 || !f.trains("autoencoder"),
          "train: --sample-every is of denoisers, and has no effect on an autoencoder");
  const bool controls = f.trains("controlnet") && !f.sample_prompts.empty();
  require(controls || f.sample_controls.empty(),
          "train: --sample-controls are images that --sample-prompts are drawn with by a control ",
          "network (--train controlnet)");
  require(!controls || !f.sample_controls.empty(),
          "train: --sample-prompts of a control network want --sample-controls, the images that ",
          "they are drawn with");
  require(c.sample_every > 0 || f.sample_prompts.empty(),
          "train: --sample-prompts has no effect without --sample-every");
}

int run_rank(Options& o) {
  FinetuneRequest& r = o.request;
  share_seed(r.train.seed, o.ranks.get());
  if (o.resumes) {
    say_changes(fields_of(o.trained_before), fields_of(r.train));
    say_changes(finetune_fields(o.before), finetune_fields(r.config));
  }
  check(r.train, o.ranks ? o.ranks->ranks() : 1);
  r.threads = own_threads(r.train.threads, o.ranks.get());
  r.split = train::split_of(r.train, o.ranks.get());
  if (o.ranks) r.ranks_here = o.ranks->ranks_here();
  const Context context = open_device(
      {.device = r.train.device, .tune = r.train.tune, .threads = r.threads}, o.ranks.get());
  int signal = 0;
  const std::unique_ptr<CheckpointTraining> training = prepared(o, context, signal);
  if (!training) return signal_exit + signal;
  train::TrainJob job = training->job();
  job.ranks = o.ranks.get();
  return run_training(std::move(job), context, o.json);
}

int run(Options& o) {
  train::TrainConfig& c = o.request.train;
  require(!c.data.empty(), "train: --data is missing");
  check_kept(o);
  check(c);
  check(o.request.config);
  require(!o.request.config.trains("autoencoder") || o.diffusion.empty(),
          "train: ", o.diffusion.empty() ? "" : flag_of(o.diffusion.front().first),
          " is of denoisers, and has no effect on an autoencoder");
  check_samples(c, o.request.config);
  check_given(c, o.given);
  if (!is_quiet()) train::check_run_folder(c.out, c.resume, c.overwrite);
  if (const auto code = start_copies(c.gpus, c.device)) return *code;
  o.ranks = join_group();
  return run_ranked(o.ranks.get(), [&o] { return run_rank(o); });
}

bool is_model_name(const std::string& name) {
  try {
    find_model(name);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string folder_of(const std::vector<std::string>& words) {
  const std::string out = flag_value(words, "--out");
  return out.empty() ? train::TrainConfig().out : out;
}

}  // namespace

bool trains_checkpoint(const std::vector<std::string>& words) {
  if (const std::string model = flag_value(words, "--model"); !model.empty())
    return !is_model_name(model) && (fs::exists(model) || model.find('/') != std::string::npos ||
                                     model.ends_with(".safetensors") || model.ends_with(".ckpt"));
  if (!is_on(words, "--resume")) return false;
  const std::string folder = folder_of(words);
  return !train::checkpoint_steps(folder).empty() &&
         train::last_model_info(folder).run.task == finetune_task;
}

void check_no_checkpoint_flags(const CLI::App& app, const std::vector<std::string>& words) {
  FinetuneConfig config;
  const std::vector<Field> fields = finetune_fields(config);
  for (const std::string& word : words) {
    if (word == "--") return;
    const std::string flag = word.substr(0, word.find('='));
    const auto names = [&](const Field& f) {
      return flag == flag_of(f.name) ||
             (std::holds_alternative<bool*>(f.ref) && flag == negated_flag_of(f.name));
    };
    require(!flag.starts_with("--") || app.get_option_no_throw(flag) != nullptr ||
                std::ranges::none_of(fields, names),
            "train: ", flag, " is of training on a checkpoint: give one, --model FILE");
  }
}

std::function<int()> bind_checkpoint_training(CLI::App& app,
                                              const std::vector<std::string>& words) {
  const auto o = std::make_shared<Options>();
  if (is_on(words, "--resume")) {
    read_run(*o, folder_of(words));
  } else {
    o->request.train = usual_settings(words);
  }
  app.footer(
      "example:\n  ebb train --model sd15.safetensors --data photos/ --adapter lora --steps 1000 "
      "--out run");
  add_flags(app, fields_of(*o));
  add_flags(app, train_fields(o->request.train), "Training");
  add_flags(app, finetune_fields(o->request.config), "Checkpoint, pictures and captions");
  std::vector<std::string> adapters = adapters::trainable_kinds();
  adapters.insert(adapters.begin(), "none");
  describe_choices(app, "adapter", adapters);
  add_overrides(app, o->diffusion, Overrides::training);
  return [o, &app] {
    o->given = given_fields(app);
    resolve(o->request.train);
    resolve(o->request.config);
    for (const auto& d : o->diffusion) o->request.diffusion.push_back(d);
    return run(*o);
  };
}

}  // namespace ebb::cli
