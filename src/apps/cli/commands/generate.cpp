// ebb generate --model FILE --prompt TEXT: pictures from text.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/command.h"
#include "apps/cli/generate_flags.h"
#include "apps/cli/generate_request.h"
#include "apps/cli/generated_pictures.h"
#include "apps/cli/interruption.h"
#include "apps/cli/picture_output.h"
#include "apps/cli/preview_output.h"
#include "apps/cli/settings_file.h"
#include "apps/cli/terminal.h"
#include "apps/cli/unused_flags.h"
#include "apps/cli/written_files.h"
#include "base/byte_size.h"
#include "base/choices.h"
#include "base/error.h"
#include "base/names.h"
#include "pipeline/model_in_the_box.h"
#include "pipeline/picture_dialect.h"
#include "pipeline/text_to_image_devices.h"
#include "train/stop.h"

namespace ebb::cli {
namespace {

// Bytes; 0: what is free.
int64_t memory_of(const std::string& text) {
  if (text == "auto") return 0;
  const auto bytes = parse_size(text);
  const size_t unit = std::min(text.find_first_not_of("0123456789."), text.size());
  require(bytes || unit == 0 || !parse_size("1" + text.substr(unit)), "generate: --memory is out ",
          "of range: more than 0 and less than 10^9 units (got '", text, "')");
  require(bytes.has_value(), "generate: --memory must be auto or ", size_forms, " (got '", text,
          "')");
  return *bytes;
}

std::string pictures(int64_t n) { return str(n, n == 1 ? " image" : " images"); }

void report(const GenerateFlags& o, const RunReport& r, const PictureFiles& files, double seconds) {
  if (o.common.json) {
    const nlohmann::ordered_json j = {{"seconds", seconds},
                                      {"text_seconds", r.text_seconds},
                                      {"sampling_seconds", r.sampling_seconds},
                                      {"decoding_seconds", r.decoding_seconds},
                                      {"steps", r.steps},
                                      {"evaluations", r.evaluations},
                                      {"dtype", r.ran.dtype},
                                      {"planned_bytes", r.planned_bytes},
                                      {"peak_bytes", r.peak_bytes},
                                      {"schedule", r.ran.schedule},
                                      {"n", pictures_of(o)},
                                      {"out", o.out},
                                      {"files", files.json()}};
    print_json(j);
    return;
  }
  std::fprintf(stderr, "%s in %.1f s (text %.1f s): %s\n", pictures(pictures_of(o)).c_str(),
               seconds, r.text_seconds, place_of(files.files(), o.out).c_str());
}

// Tells that a signal ended it, before there could be files (null) or with those that are finished.
int interrupted(const GenerateFlags& o, const PictureFiles* files, int signal) {
  const nlohmann::ordered_json facts = {
      {"n", pictures_of(o)},
      {"out", o.out},
      {"files", files ? files->json() : nlohmann::ordered_json::array()}};
  return say_interrupted("generate", signal,
                         files ? files->written_text() : "nothing was written to " + o.out,
                         o.common.json ? &facts : nullptr);
}

// A run and what it is told by.
struct Running {
  const GenerateFlags& options;
  PictureFiles& files;
  ProgressLine& line;
  const train::StopSignals& signals;
  std::mutex& telling;  // held while it writes and prints
};

// `end`, behind which what is finished is in files, also where it throws.
int with_files(const Running& r, const std::function<int()>& end) {
  try {
    return end();
  } catch (...) {
    try {
      r.files.finish();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());  // beside what ended the run
    }
    if (r.files.count() > 0) std::fprintf(stderr, "generate: %s\n", r.files.written_text().c_str());
    throw;
  }
}

// Runs it and tells of it.
int run_into(const Running& r, const std::function<RunReport()>& run) {
  const auto start = std::chrono::steady_clock::now();
  const auto stopped = [&r] {
    r.line.finish();
    r.files.finish();
    return interrupted(r.options, &r.files, r.signals.requested());
  };
  return with_files(r, [&] {
    try {
      const RunReport done = [&] {
        const StopDeadline deadline(r.signals, r.telling, [&] { return with_files(r, stopped); });
        return run();
      }();
      r.line.finish();
      r.files.finish();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      report(r.options, done, r.files, seconds.count());
      return 0;
    } catch (const Cancelled&) {
      return stopped();
    }
  });
}

// How pictures are kept, where it has an effect.
void check_kept(const GenerateFlags& o, Output output) {
  GenerateFlags given = o, plain;
  const auto check = [&](std::string_view name, std::string_view why) {
    check_unused(given.others(), plain.others(), {name}, why);
  };
  const auto format = format_of(o);
  if (output != Output::folder && io::picture_format("." + o.format) != format)
    check("format", str("with --out ", o.out, ", whose ending says it"));
  if (!has_quality(o)) check("quality", format ? "on PNG files" : "on latents");
}

std::optional<PreviewOutput> preview_of(const GenerateFlags& o, TextToImage& pipeline,
                                        const ResolvedTextToImage& request) {
  if (o.preview.empty()) {
    require(o.preview_decoder.empty(),
            "generate: --preview-decoder has no effect without --preview");
    return {};
  }
  std::optional<LoadedComponent> decoder;
  if (!o.preview_decoder.empty())
    decoder = load_autoencoder(o.preview_decoder, "--preview-decoder", o.variant);
  return PreviewOutput(parse_preview(o.preview), pipeline.preview(request, decoder));
}

RunEvents events_of(const Running& r, std::optional<PreviewOutput>& preview) {
  RunEvents out;
  out.progress = [r](const RunProgress& p) {
    const std::lock_guard lock(r.telling);
    say_changed_files(&r.line);
    r.line.show(p.of_run, name_of(p.stage), p.seconds_left);
    return r.signals.requested() == 0;
  };
  out.picture = [r](const Picture& p) {
    const std::lock_guard lock(r.telling);
    say_changed_files(&r.line);
    r.files.add(p);
  };
  if (preview) out.step = [r, &preview](const StepView& s) { preview->show(s, r.telling); };
  out.planned = [r](const RunMemory& m) {
    const std::lock_guard lock(r.telling);
    r.line.finish();  // which is shown again
    std::fprintf(stderr, "memory: at most %s\n", text_of(m).c_str());
  };
  out.tell = [r](const std::string& text) {
    const std::lock_guard lock(r.telling);
    r.line.finish();
    std::fprintf(stderr, "%s\n", text.c_str());
  };
  return out;
}

// One on each device, of the same weights.
std::vector<std::unique_ptr<TextToImage>> pipelines_of(const CheckpointParts& parts,
                                                       const std::vector<Context>& devices,
                                                       const TextToImageOptions& options) {
  std::vector<std::unique_ptr<TextToImage>> out;
  for (const Context& c : devices)
    c.device->run_current([&] { out.push_back(std::make_unique<TextToImage>(parts, c, options)); });
  return out;
}

int run(const GenerateFlags& o) {
  const int64_t memory = memory_of(o.memory);
  const size_t gpus = devices_of(o.gpus, o.common);
  require(o.quality >= 1 && o.quality <= 100, "generate: --quality must be 1 to 100 (got ",
          o.quality, ")");
  require(o.first_image >= 0, "generate: --first-image must not be negative (got ", o.first_image,
          ")");
  require(o.lora_dir.empty() || std::filesystem::is_directory(o.lora_dir),
          "generate: --lora-dir is no folder  ", o.lora_dir);
  const Output output = output_of(o.out, "generate");
  check_kept(o, output);
  require(o.control.upscale.empty() || output == Output::grid || output == Output::folder,
          "generate: --upscale makes pictures larger, but --out takes latents  ", o.out);
  check_inputs(o);
  check_output_path(o.out, "generate", o.overwrite);
  const train::StopSignals signals(stopping);
  std::mutex telling;
  std::optional<StopDeadline> loading(std::in_place, signals, telling,
                                      [&] { return interrupted(o, nullptr, signals.requested()); });
  const TextToImageRequest asked = request_of(o);
  CheckpointParts parts = parts_of(o);
  say_guesses(parts.denoiser);
  const ResolvedTextToImage request = divided(resolve(parts, asked), gpus);
  if (asked.pixels)
    check_picture_size(o.out, "generate", picture_size(parts, request), pictures_of(o),
                       style_of(o));
  say_warnings(request.warnings);
  TextToImageOptions options{.keeps_encoders = false, .memory = memory};
  if (!o.embedding_dir.empty())
    options.embeddings = text::read_embedding_folder(o.embedding_dir, syntax_of(o));
  const std::vector<std::unique_ptr<TextToImage>> pipelines = pipelines_of(
      parts, open_devices(o.common, o.gpus, used_devices(o.n, request.first().batch, gpus)),
      options);
  TextToImage& first = *pipelines[0];
  PictureFiles files(o, request, first.ran(request));
  ProgressLine line("generate");
  const Running running{
      .options = o, .files = files, .line = line, .signals = signals, .telling = telling};
  std::optional<PreviewOutput> preview = preview_of(o, first, request);
  const RunEvents events = events_of(running, preview);
  loading.reset();
  const int code = run_into(running, [&] { return run_on(pipelines, request, events); });
  if (preview && code == 0) preview->check_shown();
  return code;
}

// Of a picture's settings: the options of its sampler and schedule are not those of others.
void drop_options(GenerateOptions& o, const GenerateOptions& of_picture, const CLI::App& app) {
  const auto drop = [&](const auto& name, const auto& options, std::string_view flag) {
    if (!same_name(o.*name, of_picture.*name) && o.*options == of_picture.*options &&
        !is_given(app, flag))
      (o.*options).clear();
  };
  drop(&GenerateOptions::sampler, &GenerateOptions::options, "options");
  drop(&GenerateOptions::schedule, &GenerateOptions::schedule_options, "schedule_options");
}

// The flags that make another picture than the one that is named by --like: then its batch is of no
// interest.
void resolve_like(GenerateFlags& o, const GenerateOptions& of_picture, const Like& like,
                  const CLI::App& app) {
  require(!o.model.empty() || like.model.empty(), "generate: the picture was made with the model ",
          like.model, "; --model FILE names it  ", o.like);
  for (const Like::Need& need : like.needs)
    require(is_given(app, need.field), "generate: ", need.why, "  ", o.like);
  for (const std::string& setting : like.unused)
    std::fprintf(stderr, "warning: like: not followed: %s\n", setting.c_str());
  const InputFiles inputs = input_files(o);
  for (const InputFile& f : inputs.all()) {
    const size_t space = f.name.find(' ');  // before the number of one of several
    const std::string field = f.name.substr(0, space), flag = flag_of(field);
    require(!f.path.empty() || is_given(app, field), "generate: ", flag,
            space == f.name.npos ? "" : " number" + f.name.substr(space),
            " of the picture does not exist here; ", flag,
            space == f.name.npos ? " names another (" : " names others, all of them anew (", f.text,
            ")  ", o.like);
  }
  drop_options(o.generate, of_picture, app);
  if (!is_given(app, "quality") && !has_quality(o)) o.quality = GenerateFlags().quality;
  o.made_with = like.hashes;
  if (like.image < 0) return;
  const bool count = is_given(app, "n"), batch = is_given(app, "batch"),
             first = is_given(app, "first_image");
  if (!count && !batch && !first && !is_given(app, "seed")) {
    o.only = like.image - o.first_image;
    return;
  }
  if (!count) o.n = 1;
  if (!batch) o.generate.batch = 0;
  if (!first) o.first_image = is_given(app, "seed") ? 0 : like.image;
}

// Where no --model is named: the one that comes with ebb.
void take_model_in_the_box(GenerateFlags& o) {
  o.model = model_in_the_box();
  std::fprintf(stderr, "model: takes the one that comes with ebb  %s\n", o.model.c_str());
}

std::function<int()> bind(CLI::App& app, const std::vector<std::string>& words) {
  const auto o = std::make_shared<GenerateFlags>();
  Like like;
  const std::string picture = flag_value(words, "--like"), config = flag_value(words, "--config");
  if (!picture.empty()) like = set_like(o->settings(true), o->diffusion, picture);
  const GenerateOptions of_picture = o->generate;
  if (!config.empty()) {
    std::vector<Field> all = fields_of(*o);
    std::ranges::move(o->others(), std::back_inserter(all));
    std::ranges::move(fields_of(o->common), std::back_inserter(all));
    set_config(all, o->diffusion, config);
  }
  add_flags(app, fields_of(*o));
  add_flags(app, o->others());
  add_overrides(app, o->diffusion);
  add_flags(app, fields_of(o->common));
  o->choices([&](std::string_view field, const std::string&,
                 const std::vector<std::string>& names) { describe_choices(app, field, names); });
  return [o, &app, like, picture, config, of_picture] {
    settle(*o, [&](std::string_view field) { return is_given(app, field); });
    say_drawn(o->generate.seed);
    if (!o->like.empty()) resolve_like(*o, of_picture, like, app);
    if (o->model.empty()) take_model_in_the_box(*o);
    if (o->like.empty() && o->prompt.empty() && !is_given(app, "prompt"))
      say_warnings({"there is no --prompt TEXT: nothing says what the picture shows"});
    return run(*o);
  };
}

}  // namespace

const Command& generate() {
  static const Command c{
      "generate",
      "make pictures from text with a Stable Diffusion checkpoint",
      "ebb generate --model sd15.safetensors --prompt \"a red fox in the snow\" "
      "--size 512x512 --steps 20 --seed 1 --out fox.png",
      bind,
      {"model", "prompt", "negative", "size", "steps", "sampler", "guidance", "seed", "n", "init",
       "strength", "mask", "hires", "like", "out"},
      {"control", "control_model", "control_mask", "control_blocks", "lora", "refiner_lora"}};
  return c;
}

}  // namespace ebb::cli
