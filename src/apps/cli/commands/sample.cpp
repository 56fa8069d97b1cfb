// ebb sample CHECKPOINT: pictures from a trained model.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/command.h"
#include "apps/cli/gpus.h"
#include "apps/cli/input_files.h"
#include "apps/cli/interruption.h"
#include "apps/cli/picture_output.h"
#include "apps/cli/terminal.h"
#include "base/choices.h"
#include "base/error.h"
#include "base/json.h"
#include "base/names.h"
#include "base/utf8.h"
#include "base/version.h"
#include "io/file.h"
#include "io/image.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "pipeline/pipeline_group.h"
#include "pipeline/run_dtype.h"
#include "train/stop.h"

namespace ebb::cli {
namespace {

struct Options {
  std::string checkpoint, model, out, wanted = "all", size = "auto", gpus;
  int64_t n = 16, columns = 0;
  bool overwrite = false;
  GenerateOptions generate;
  CommonOptions common;
  FieldTexts diffusion;
  void fields(auto&& f) {
    f("n", n, "number of images");
    f("class", wanted, "a class (number or name), all (in turn) or none");
    f("size", size,
      "of the images in pixels, N or WIDTHxHEIGHT, where the network takes it; auto: the model's");
    f("out", out,
      "a .png, .jpg or .webp file for one grid; .safetensors or .npy for the numbers, of latents "
      "too; else a "
      "folder for single files; without it samples.png, in the run's folder if CHECKPOINT is one");
    f("overwrite", overwrite, overwrite_help);
    f("columns", columns, "of the grid; 0: automatic");
    f("model", model, "model of a file that is not recognised");
    f("gpus", gpus, gpus_help);
    generate.fields(f);
  }
};

// The words all and none in any case, unless a class is called so.
void resolve_class(Options& o, const LoadedModel& m) {
  const std::string word = small_letters(o.wanted);
  const bool is_class = std::ranges::find(m.class_names, o.wanted) != m.class_names.end();
  if (!is_class && (word == "all" || word == "none")) o.wanted = word;
}

std::vector<int64_t> classes_for(const Options& o, const LoadedModel& m) {
  const int64_t count = m.config.common().classes;
  std::vector<int64_t> out(static_cast<size_t>(o.n), -1);
  if (count == 0 || o.wanted == "none") {
    require(count > 0 || o.wanted == "all" || o.wanted == "none",
            "sample: the model has no classes (--class ", o.wanted, ")");
    return out;
  }
  if (o.wanted == "all") {
    for (int64_t i = 0; i < o.n; ++i) out[static_cast<size_t>(i)] = i % count;
    return out;
  }
  const size_t named = find_name(o.wanted, m.class_names);
  const bool known = named < m.class_names.size();
  const bool number = !o.wanted.empty() && std::all_of(o.wanted.begin(), o.wanted.end(),
                                                       [](char x) { return x >= '0' && x <= '9'; });
  require(number || known, "sample: no class is called '", o.wanted, "'",
          suggestion(o.wanted, m.class_names));
  const int64_t c = known ? static_cast<int64_t>(named) : parse_integer(o.wanted, "--class");
  std::fill(out.begin(), out.end(), c);
  return out;
}

// What ran: with these a checkpoint gives the same pictures again.
std::map<std::string, std::string> settings(const Options& o, const LoadedModel& m,
                                            const Generated& g) {
  std::map<std::string, std::string> text{{"Software", str("ebb ", version)},
                                          {"checkpoint", repaired_utf8(o.checkpoint)},
                                          {"checkpoint_step", std::to_string(m.step)},
                                          {"model", m.model->name},
                                          {"class", o.wanted}};
  GenerateOptions ran = g.ran;
  for (const Field& f : fields_of(ran)) text[f.name] = field_text(f);
  if (ran.noise == "auto") text["noise_start"] = g.start_noise, text["noise_steps"] = g.step_noise;
  DiffusionConfig d = m.diffusion;
  for (const Field& f : fields_of(d)) text[f.name] = field_text(f);
  text["n"] = std::to_string(o.n);
  if (o.size != "auto") text["size"] = o.size;
  return text;
}

std::string images_text(int64_t n) { return str(n, n == 1 ? " image" : " images"); }

// The numbers, of latents where the model makes them, in the order [N,C,H,W] that other programs
// have.
void write_numbers(const Options& o, const LoadedModel& m, const Generated& g) {
  const Tensor numbers = channels_first(g.latents.defined() ? g.latents : g.images);
  const io::Existing existing = existing_at(o.out, o.overwrite);
  if (output_of(o.out, "sample") == Output::npy) return io::write_npy(o.out, numbers, existing);
  const io::NamedTensor tensor{g.latents.defined() ? "latents" : "images", numbers};
  io::write_safetensors(o.out, {&tensor, 1}, settings(o, m, g), existing);
}

// The columns of a grid with one row per class, where all are requested, their numbers are equal
// and the file holds it; 0: there are no such rows.
int64_t columns_of_classes(const Options& o, const LoadedModel& m, const ImageSize& size) {
  const int64_t classes = m.config.common().classes;
  const bool equal = output_of(o.out, "sample") == Output::grid && o.wanted == "all" &&
                     classes > 1 && o.n % classes == 0 && o.columns == 0;
  return equal && grid_fits(o.out, size, o.n, o.n / classes) ? o.n / classes : 0;
}

// One grid, or one file per image.
void write_images(const Options& o, const LoadedModel& m, const Generated& g) {
  const Tensor pixels = to_pixels(g.images);
  const Shape& s = pixels.shape();
  const int64_t per_class = columns_of_classes(o, m, {.height = s[1], .width = s[2]});
  const int64_t classes = m.config.common().classes;
  std::vector<Tensor> images;
  for (int64_t i = 0; i < s[0]; ++i)
    images.push_back(image_at(pixels, per_class > 0 ? i % per_class * classes + i / per_class : i));
  auto text = settings(o, m, g);
  if (per_class > 0) text["rows"] = strings_json(class_labels(m));
  write_pictures(o.out, images, [&](int64_t) { return text; },
                 {.columns = std::max(o.columns, per_class),
                  .first_image = first_number(o.out),
                  .overwrite = o.overwrite});
}

void write_samples(const Options& o, const LoadedModel& m, const Generated& g) {
  const Output output = output_of(o.out, "sample");
  std::optional<io::TrialFolder> folder;
  if (output == Output::folder) folder.emplace(o.out, "sample: --out");
  if (output == Output::grid || output == Output::folder)
    write_images(o, m, g);
  else
    write_numbers(o, m, g);
}

// Throws Error for pictures of what is none, before any work.
void check_output(const Options& o, const LoadedModel& m) {
  const Output output = output_of(o.out, "sample");
  const auto conditions = m.model->conditions(m.config);
  const bool reads_text = std::ranges::any_of(conditions, [](const nn::Condition& c) {
    return c.shape.rank() > 0 && c.shape[0] == nn::Condition::any;
  });
  require(decoder_of(*m.model, m.config) || output == Output::safetensors || output == Output::npy,
          "sample: ", m.model->name, " makes ", samples_text(*m.model, m.config),
          ", which nothing here makes pictures of; ",
          reads_text ? "ebb generate makes pictures of a text with it, and " : "",
          "--out FILE.safetensors or FILE.npy takes them  ", o.out);
}

// Of the pictures, in pixels.
ImageSize size_of(const LoadedModel& m, const ResolvedRequest& r) {
  const auto space = m.model->latents(m.config);
  const int64_t factor = space ? space->factor : 1;
  return {.height = r.sample[0] * factor, .width = r.sample[1] * factor};
}

ResolvedRequest resolved(const Options& o, const LoadedModel& model, size_t devices) {
  ResolvedRequest r = resolve(
      model, {.classes = classes_for(o, model), .size = image_size(o.size, "sample")}, o.generate);
  if (o.generate.batch == 0) divide(r, devices);
  say_warnings(r.warnings);
  return r;
}

// What signals stop: loading and sampling.
class Sampling {
 public:
  explicit Sampling(const Options& o) : options_(o) {}

  // Of a run that a signal ended it tells.
  int interrupted() {
    if (line_) line_->finish();
    const nlohmann::ordered_json facts = {{"n", options_.n}, {"out", options_.out}};
    return say_interrupted(
        "sample", signals_->requested(),
        str("nothing was written to ", options_.out, " (at ", static_cast<int64_t>(100 * done_),
            " % of ", images_text(options_.n), ")"),
        options_.common.json ? &facts : nullptr);
  }
  // None if a signal asked for the end. Afterwards one only tells that the images are written all
  // the same.
  std::optional<Generated> generate(PipelineGroup& pipelines, const ResolvedRequest& request) {
    try {
      Generated g = pipelines.generate(request, [&](double share) {
        const std::lock_guard lock(telling_);
        if (!line_) line_.emplace("sampling");
        say_changed_files(&*line_);
        line_->show(done_ = share);
        return signals_->requested() == 0;
      });
      deadline_.reset();
      if (line_) line_->finish();
      say_changed_files(nullptr);
      if (signals_->requested() != 0) return std::nullopt;
      signals_.emplace(
          "all images are made and are being written; again, after a second, to end now");
      return g;
    } catch (const Cancelled&) {
      deadline_.reset();
      return std::nullopt;
    }
  }

 private:
  const Options& options_;
  std::optional<train::StopSignals> signals_{stopping};  // until all files are written
  std::optional<ProgressLine> line_;                     // from where sampling begins
  double done_ = 0;
  std::mutex telling_;
  std::optional<StopDeadline> deadline_{std::in_place, *signals_, telling_,
                                        [this] { return interrupted(); }};
};

int run(Options& o) {
  require(o.n > 0 && o.n <= 1000000, "sample: n must be 1 to 1000000 (got ", o.n, ")");
  require(o.columns >= 0, "sample: columns must not be negative (got ", o.columns, ")");
  require(o.columns == 0 || output_of(o.out, "sample") == Output::grid,
          "sample: --columns has no effect on other files than a grid  ", o.out);
  InputFiles inputs;
  inputs.add("checkpoint", o.checkpoint);
  check_not_input(o.out, inputs, "sample: --out");
  check_output_path(o.out, "sample", o.overwrite);
  const size_t devices = devices_of(o.gpus, o.common);
  Sampling sampling(o);
  LoadedModel model = load_model(o.checkpoint, o.model, o.diffusion);
  say_guesses(model);
  check_output(o, model);
  resolve_class(o, model);
  const ResolvedRequest request = resolved(o, model, devices);
  const ImageSize size = size_of(model, request);
  if (output_of(o.out, "sample") == Output::grid || output_of(o.out, "sample") == Output::folder)
    check_picture_size(o.out, "sample", size, o.n,
                       {.columns = std::max(o.columns, columns_of_classes(o, model, size))});
  PipelineGroup pipelines(
      model, open_devices(o.common, o.gpus, used_devices(o.n, request.batch, devices)));
  const Pipeline& pipeline = pipelines.first();
  const std::string slow = slow_dtype_text(pipeline.dtype_of(request), *pipeline.context().device);
  if (!slow.empty()) say_warnings({slow});
  const auto start = std::chrono::steady_clock::now();
  const std::optional<Generated> made = sampling.generate(pipelines, request);
  if (!made) return sampling.interrupted();
  const Generated& g = *made;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  write_samples(o, pipeline.model(), g);
  const double speed = static_cast<double>(o.n) / seconds;
  if (o.common.json) {
    const nlohmann::ordered_json j = {{"seconds", seconds},
                                      {"steps", g.steps},
                                      {"evaluations", g.evaluations},
                                      {"schedule", g.ran.schedule},
                                      {"dtype", g.ran.dtype},
                                      {"images_per_second", speed},
                                      {"n", o.n},
                                      {"out", o.out}};
    print_json(j);
  } else {
    const std::string fewer =
        g.steps < g.ran.steps ? str(g.steps, " steps, as levels coincide; ") : std::string();
    std::fprintf(stderr, "%s in %.1f s (%s%.1f images/s, %lld evaluations each): %s\n",
                 images_text(o.n).c_str(), seconds, fewer.c_str(), speed,
                 static_cast<long long>(g.evaluations), o.out.c_str());
  }
  return 0;
}

std::function<int()> bind(CLI::App& app, const std::vector<std::string>&) {
  const auto o = std::make_shared<Options>();
  add_positional(app, "CHECKPOINT", o->checkpoint, "a model file or the folder of a training run");
  add_flags(app, fields_of(*o));
  add_overrides(app, o->diffusion);
  add_flags(app, fields_of(o->common));
  return [o, &app] {
    const bool named = is_given(app, "out");
    const std::string of_run = in_run_folder(o->checkpoint, "samples.png");
    if (!named) o->out = of_run.empty() ? "samples.png" : of_run;
    resolve(o->generate);
    say_drawn(o->generate.seed);
    resolve_auto({&o->generate.schedule, &o->generate.noise});
    o->generate.steps_given = is_given(app, "steps");
    return run(*o);
  };
}

}  // namespace

const Command& sample() {
  static const Command c{
      "sample",
      "make pictures with a trained model",
      "ebb sample out/demo --n 80 --steps 18 --sampler heun --class all --out grid.png",
      bind,
      {"n", "class", "out", "steps", "sampler", "schedule", "guidance", "seed", "batch", "device"}};
  return c;
}

}  // namespace ebb::cli
