// ebb generate --model FILE --prompt TEXT: pictures from text.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/command.h"
#include "apps/cli/picture_output.h"
#include "apps/cli/terminal.h"
#include "base/choices.h"
#include "base/error.h"
#include "base/names.h"
#include "base/version.h"
#include "io/file.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "pipeline/checkpoint_parts.h"
#include "pipeline/latent_decoder.h"
#include "pipeline/parameters.h"
#include "pipeline/pipeline.h"
#include "train/stop.h"

namespace ebb::cli {
namespace {

struct Options {
  std::string model, prompt, negative, out = "generated.png", size = "auto", vae, text_encoder,
                                       embedding_dir;
  std::string prompt_syntax = "auto";
  int64_t n = 1, clip_skip = 0;
  GenerateOptions generate{.steps = 20, .sampler = "dpmpp_2m", .schedule = "karras", .guidance = 7};
  CommonOptions common;
  FieldTexts diffusion;
  void fields(auto&& f) {
    f("model", model, "a checkpoint (.safetensors), or a folder as diffusers lays it out");
    f("prompt", prompt, "what the picture shows");
    f("negative", negative, "what it does not show");
    f("n", n, "number of images");
    f("size", size, "of the images in pixels, N or WIDTHxHEIGHT; auto: the model's");
    f("out", out,
      "a .png, .jpg or .webp file for one picture or a grid; .safetensors or .npy for the latents; "
      "else a folder");
    f("vae", vae, "a file with another autoencoder");
    f("text_encoder", text_encoder, "a file with text encoders, which win over the model's");
    f("embedding_dir", embedding_dir,
      "a folder of textual inversion files (.safetensors), which prompts name");
    f("clip_skip", clip_skip, "the text encoders' layer, from the last; 0: the model's own");
    f("prompt_syntax", prompt_syntax,
      "a1111, comfyui or diffusers; auto: of the dialect, or a1111");
    generate.fields(f);
  }
};

text::PromptSyntax syntax_of(const Options& o) {
  if (o.prompt_syntax != "auto") return text::prompt_syntax(o.prompt_syntax);
  if (o.generate.dialect == "comfy") return text::PromptSyntax::comfyui;
  if (o.generate.dialect == "diffusers") return text::PromptSyntax::diffusers;
  return text::PromptSyntax::a1111;
}

// Pixels: the model's own size where none is given.
ImageSize size_for(const Options& o, const LoadedModel& m) {
  const ImageSize size = image_size(o.size, "generate");
  if (size.height > 0) return size;
  const auto space = m.model->latents(m.config);
  const int64_t side = m.config.common().image_size * (space ? space->factor : 1);
  return {side, side};
}

// Written into pictures: A1111's text, and each setting by its name.
std::map<std::string, std::string> settings(const Options& o, const ResolvedRequest& r,
                                            const Generated& g, int64_t image) {
  GenerateOptions ran = g.ran;
  std::map<std::string, std::string> out{{"Software", str("ebb ", version)},
                                         {"model", o.model},
                                         {"prompt", o.prompt},
                                         {"negative", o.negative},
                                         {"clip_skip", std::to_string(o.clip_skip)},
                                         {"image", std::to_string(image)}};
  for (const Field& f : fields_of(ran)) out[f.name] = field_text(f);
  const Shape& s = g.images.defined() ? g.images.shape() : r.sample;
  out["parameters"] = parameters_text({.prompt = o.prompt,
                                       .negative = o.negative,
                                       .model = std::filesystem::path(o.model).stem().string(),
                                       .size = {.height = s[1], .width = s[2]},
                                       .clip_skip = o.clip_skip,
                                       .options = ran});
  return out;
}

struct Run {
  CheckpointParts parts;
  ImageSize size;
  ResolvedRequest request;
};

Run resolved(const Options& o) {
  Run run{
      .parts = load_parts({.model = o.model,
                           .text_encoders = o.text_encoder.empty() ? std::vector<std::string>{}
                                                                   : std::vector{o.text_encoder},
                           .autoencoder = o.vae},
                          o.diffusion),
      .size = {},
      .request = {}};
  const LoadedModel& m = run.parts.denoiser;
  say_guesses(m);
  run.size = size_for(o, m);
  run.request = resolve(m,
                        {.classes = std::vector<int64_t>(static_cast<size_t>(o.n), -1),
                         .size = run.size,
                         .prompted = true},
                        o.generate);
  const Output output = output_of(o.out, "generate");
  require(run.parts.autoencoder || output == Output::safetensors || output == Output::npy,
          "generate: the checkpoint has no autoencoder that makes pixels of latents; --vae FILE "
          "names one, and --out FILE.safetensors or FILE.npy takes the latents  ",
          o.model);
  for (const std::string& w : run.request.warnings)
    std::fprintf(stderr, "warning: %s\n", w.c_str());
  return run;
}

void write(const Options& o, const ResolvedRequest& r, const Generated& g) {
  if (const std::string folder = folder_of(o.out, "generate"); !folder.empty())
    io::make_folder(folder, "generate: --out");
  const Output output = output_of(o.out, "generate");
  if (output == Output::npy) return io::write_npy(o.out, channels_first(g.latents));
  if (output == Output::safetensors) {
    const io::NamedTensor tensor{"latents", channels_first(g.latents)};
    return io::write_safetensors(o.out, {&tensor, 1}, settings(o, r, g, 0));
  }
  const Tensor pixels = to_pixels(g.images);
  std::vector<Tensor> images;
  for (int64_t i = 0; i < pixels.shape()[0]; ++i) images.push_back(image_at(pixels, i));
  write_pictures(o.out, images, [&](int64_t i) { return settings(o, r, g, i); });
}

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The conditions of the run; the encoders' plans go with the stage.
RunConditions encoded(const Options& o, const Run& run, DType dtype, const Context& context) {
  const LoadedModel& m = run.parts.denoiser;
  const auto vocabulary = run.parts.tokenizer.empty()
                              ? text::builtin_clip_vocabulary()
                              : text::ClipVocabulary::open(run.parts.tokenizer);
  text::EmbeddingFolder embeddings;
  if (!o.embedding_dir.empty())
    embeddings = text::read_embedding_folder(o.embedding_dir, syntax_of(o));
  for (const std::string& w : embeddings.warnings) std::fprintf(stderr, "warning: %s\n", w.c_str());
  TextStage stage(*m.model, m.config,
                  encoder_rules(*m.model, m.config, run.parts.text_encoders, o.clip_skip),
                  vocabulary, dtype, context, std::move(embeddings));
  TextStage::Encoded text = stage.encode({.prompt = o.prompt,
                                          .negative = o.negative,
                                          .syntax = syntax_of(o),
                                          .steps = run.request.options.steps,
                                          .size = run.size});
  for (const std::string& w : text.warnings) std::fprintf(stderr, "warning: %s\n", w.c_str());
  return std::move(text.conditions);
}

void report(const Options& o, const Generated& g, double seconds, double text_seconds) {
  if (o.common.json) {
    const nlohmann::ordered_json j = {{"seconds", seconds},   {"text_seconds", text_seconds},
                                      {"steps", g.steps},     {"evaluations", g.evaluations},
                                      {"dtype", g.ran.dtype}, {"n", o.n},
                                      {"out", o.out}};
    std::puts(j.dump().c_str());
    return;
  }
  std::fprintf(stderr, "%lld %s in %.1f s (text %.1f s): %s\n", static_cast<long long>(o.n),
               o.n == 1 ? "image" : "images", seconds, text_seconds, o.out.c_str());
}

int run(const Options& o) {
  require(!o.model.empty(), "generate: --model FILE must name a checkpoint");
  require(o.n > 0 && o.n <= 10000, "generate: n must be 1 to 10000 (got ", o.n, ")");
  check_output_path(o.out, "generate");
  Run run = resolved(o);
  const Context context = open_device(o.common);
  const DType dtype =
      run.request.dtype.value_or(context.device->fast_in(DType::bf16) ? DType::bf16 : DType::f32);
  const auto start = Clock::now();
  const RunConditions conditions = encoded(o, run, dtype, context);
  const double text_seconds = seconds_since(start);
  PipelineOptions options;
  const LoadedModel& m = run.parts.denoiser;
  const bool pixels = output_of(o.out, "generate") == Output::grid ||
                      output_of(o.out, "generate") == Output::folder;
  if (const auto space = m.model->latents(m.config); space && pixels)
    options.decoder =
        latent_decoder(*run.parts.autoencoder, *space, dtype, context, [&space](const Tiling& t) {
          const auto side = static_cast<long long>(t.tile * space->factor);
          std::fprintf(stderr, "generate: memory is short: decodes tiles of %lldx%lld pixels\n",
                       side, side);
        });
  Pipeline pipeline(m, context, options);
  train::StopSignals signals(stopping);
  ProgressLine line("sampling");
  try {
    const Generated g = pipeline.generate(
        run.request,
        [&](double share) {
          line.show(share);
          return signals.requested() == 0;
        },
        conditions);
    line.finish();
    write(o, run.request, g);
    report(o, g, seconds_since(start), text_seconds);
    return 0;
  } catch (const Cancelled&) {
    line.finish();
    std::fprintf(stderr, "generate: interrupted by signal %d; nothing was written to %s\n",
                 signals.requested(), o.out.c_str());
    return signal_exit + signals.requested();
  }
}

std::function<int()> bind(CLI::App& app, const std::vector<std::string>&) {
  const auto o = std::make_shared<Options>();
  add_flags(app, fields_of(*o));
  add_overrides(app, o->diffusion);
  add_flags(app, fields_of(o->common));
  return [o, &app] {
    resolve(o->generate);
    resolve_auto({&o->generate.schedule, &o->generate.noise, &o->prompt_syntax});
    o->generate.steps_given = is_given(app, "steps");
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
      {"model", "prompt", "negative", "size", "steps", "sampler", "guidance", "seed", "n", "out"}};
  return c;
}

}  // namespace ebb::cli
