#include "pipeline/text_to_image.h"

#include <algorithm>

#include "base/error.h"
#include "pipeline/latent_decoder.h"

namespace ebb {
namespace {

// Work in evaluations of the denoiser: what a prompt's encoding and a picture's decoding cost, for
// the share of progress alone.
constexpr double work_of_text = 1, work_of_decoding = 3;

ImageSize own_size(const LoadedModel& m) {
  const auto space = m.model->latents(m.config);
  const int64_t side = m.config.common().image_size * (space ? space->factor : 1);
  return {side, side};
}

StageWork work_of(const ResolvedTextToImage& r) {
  StageWork work{};
  const auto count = static_cast<double>(r.request.count);
  work[static_cast<size_t>(Stage::text)] = work_of_text;
  work[static_cast<size_t>(Stage::sampling)] =
      count * static_cast<double>(std::max<int64_t>(r.sampling.counts.evaluations, 1));
  if (r.request.pixels) work[static_cast<size_t>(Stage::decoding)] = count * work_of_decoding;
  return work;
}

PipelineOptions without_decoder(size_t plans) {
  return {.plans = plans, .decoder = Decoder{.name = "", .decode = {}}};
}

// Those of the request and of its prompt, checked against the checkpoint.
void resolve_loras(const CheckpointParts& parts, ResolvedTextToImage& r) {
  std::vector<LoraChoice> choices = r.request.loras;
  for (const text::LoraTag& tag : text::parse_prompt(r.request.prompt, r.request.syntax).loras)
    choices.push_back(find_lora(tag, r.request.lora_dir));
  for (const text::LoraTag& tag :
       text::parse_prompt(r.request.negative, r.request.syntax, true).loras)
    r.warnings.push_back(
        str("lora: in the negative prompt it has no effect  <lora:", tag.name, ">"));
  if (choices.empty()) return;
  r.loras = open_loras(choices);
  const auto networks = networks_of(parts.denoiser, r.encoders);
  for (const std::string& w : adapters::check(r.loras, networks)) r.warnings.push_back(w);
}

}  // namespace

ResolvedTextToImage resolve(const CheckpointParts& parts, const TextToImageRequest& request) {
  require(request.count > 0 && request.count <= 10000, "generate: n must be 1 to 10000 (got ",
          request.count, ")");
  require(!request.pixels || parts.autoencoder,
          "generate: the checkpoint has no autoencoder that makes pixels of latents; --vae FILE "
          "names one, and --out FILE.safetensors or FILE.npy takes the latents");
  const LoadedModel& m = parts.denoiser;
  ResolvedTextToImage r{.request = request, .encoders = {}, .sampling = {}, .warnings = {}};
  if (r.request.size.height == 0) r.request.size = own_size(m);
  r.encoders = encoder_rules(*m.model, m.config, parts.text_encoders, request.clip_skip);
  r.sampling = resolve(m,
                       {.classes = std::vector<int64_t>(static_cast<size_t>(request.count), -1),
                        .first_image = request.first_image,
                        .size = r.request.size,
                        .prompted = true},
                       request.options);
  r.warnings = r.sampling.warnings;
  resolve_loras(parts, r);
  return r;
}

TextToImage::TextToImage(CheckpointParts parts, Context context, TextToImageOptions options)
    : parts_(std::move(parts)),
      context_(std::move(context)),
      options_(std::move(options)),
      vocabulary_(parts_.tokenizer.empty() ? text::builtin_clip_vocabulary()
                                           : text::ClipVocabulary::open(parts_.tokenizer)),
      pipeline_(parts_.denoiser, context_, without_decoder(options_.plans)) {}

// Files that were open before stay so, and weights whose changes are the same are not touched.
void TextToImage::apply_loras(const ResolvedTextToImage& r) {
  if (r.loras.empty() && loras_.empty()) return;
  std::vector<adapters::AdapterUse> uses = r.loras;
  for (adapters::AdapterUse& use : uses)
    for (const adapters::AdapterUse& before : loras_)
      if (before.file->identity() == use.file->identity()) use.file = before.file;
  adapters::apply(uses, networks_of(parts_.denoiser, r.encoders), options_.keeps_loras);
  loras_ = std::move(uses);
}

RunConditions TextToImage::encoded(const ResolvedTextToImage& r, DType dtype,
                                   const RunEvents& events) {
  const TextToImageRequest& q = r.request;
  const LoadedModel& m = parts_.denoiser;
  if (!text_.stage || text_.dtype != dtype || text_.clip_skip != q.clip_skip)
    text_ = {dtype, q.clip_skip,
             std::make_unique<TextStage>(*m.model, m.config, r.encoders, vocabulary_, dtype,
                                         context_, options_.embeddings)};
  TextStage::Encoded text = text_.stage->encode({.prompt = q.prompt,
                                                 .negative = q.negative,
                                                 .syntax = q.syntax,
                                                 .steps = r.sampling.options.steps,
                                                 .size = q.size});
  if (!options_.keeps_encoders) text_.stage.reset();
  if (events.tell)
    for (const std::string& w : text.warnings) events.tell("warning: " + w);
  if (!q.controls.empty())
    add_controls(text.conditions, parts_.denoiser, q.controls, r.sampling.sample,
                 r.sampling.options.steps);
  return std::move(text.conditions);
}

Decoder& TextToImage::decoder(DType dtype) {
  if (pixels_.decoder && pixels_.dtype == dtype) return *pixels_.decoder;
  const LatentSpace space = *parts_.denoiser.model->latents(parts_.denoiser.config);
  const auto tells = [this, factor = space.factor](const Tiling& t) {
    const int64_t side = t.tile * factor;
    if (tell_)
      tell_(str("generate: memory is short: decodes tiles of ", side, "x", side, " pixels"));
  };
  pixels_ = {dtype, latent_decoder(*parts_.autoencoder, space, dtype, context_, tells)};
  return *pixels_.decoder;
}

// One picture at a time, so that each is there as soon as it can be.
void TextToImage::hand_out(const ResolvedTextToImage& r, int64_t first, const Tensor& latents,
                           RunMeter& meter, const RunEvents& events) {
  const DType dtype = pipeline_.dtype_of(r.sampling);
  for (int64_t i = 0; i < latents.shape()[0]; ++i) {
    Picture out{.index = first + i, .pixels = {}, .latents = image_at(latents, i).clone()};
    const auto index = static_cast<double>(out.index), count = static_cast<double>(r.request.count);
    if (r.request.pixels) {
      meter.show(Stage::decoding, index / count);
      out.pixels = image_at(decoder(dtype).decode(latents.rows(i, i + 1).clone()), 0);
    }
    if (events.picture) events.picture(std::move(out));
    if (r.request.pixels) meter.show(Stage::decoding, (index + 1) / count);
  }
}

RunReport TextToImage::run(const ResolvedTextToImage& r, const RunEvents& events) {
  tell_ = events.tell;
  const ResolvedRequest& s = r.sampling;
  RunMeter meter(work_of(r), events.progress);
  meter.show(Stage::text, 0);
  apply_loras(r);
  const RunConditions conditions = encoded(r, pipeline_.dtype_of(s), events);
  meter.show(Stage::text, 1);
  RunReport out{.ran = ran(r),
                .start_noise = s.noise.source,
                .step_noise = s.noise.steps.empty() ? s.noise.source : s.noise.steps};
  const auto count = static_cast<double>(r.request.count);
  for (int64_t at = 0; at < r.request.count; at += s.batch) {
    const auto images = static_cast<double>(std::min(s.batch, r.request.count - at));
    const Pipeline::Sampled batch = pipeline_.sample(s, at, conditions, [&](double share) {
      meter.show(Stage::sampling, (static_cast<double>(at) + images * share) / count);
      return true;
    });
    out.steps = batch.steps;
    out.evaluations = batch.evaluations;
    hand_out(r, at, batch.samples, meter, events);
  }
  out.text_seconds = meter.seconds(Stage::text);
  out.sampling_seconds = meter.seconds(Stage::sampling);
  out.decoding_seconds = meter.seconds(Stage::decoding);
  return out;
}

}  // namespace ebb
