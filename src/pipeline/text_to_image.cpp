#include "pipeline/text_to_image.h"

#include <algorithm>

#include "base/error.h"
#include "core/out_of_memory.h"
#include "diffusion/solver/not_finite.h"
#include "pipeline/image_beside.h"
#include "pipeline/image_encoder.h"
#include "pipeline/open_choices.h"
#include "pipeline/picture_dialect.h"
#include "pipeline/run_setup.h"

namespace ebb {
namespace {

void take_size(TextToImageRequest& q, const LoadedModel& m) {
  require(q.init || !q.mask, "generate: --mask needs a picture that it belongs to: --init FILE");
  if (q.outpaint != Outpaint{}) {
    require(q.init.has_value(), "generate: --outpaint needs a picture to extend: --init FILE");
    require(q.size.height == 0, "generate: --size and --outpaint both say the size of the picture");
    extend(*q.init, q.mask, q.outpaint, pixel_multiple(m));
  }
  if (q.size.height != 0) return;
  const bool own = !q.init || (q.mask && q.mask->only_masked);
  q.size = own ? own_size(m) : size_of_run(q.init->picture, pixel_multiple(m));
}

// Of sizes far beyond those that the network was trained on, before it spends the time.
void add_size_warning(ResolvedTextToImage& r, const LoadedModel& m) {
  constexpr int64_t most = 16;  // times its pixels
  const ImageSize own = own_size(m), size = r.request.size;
  const int64_t times = size.height * size.width / (own.height * own.width);
  if (times <= most) return;
  r.warnings.push_back(str("size: ", size.width, "x", size.height, " has ", times,
                           " times the pixels of the pictures that the model was trained on (",
                           own.width, "x", own.height, "): it takes more than ", times,
                           " times as long, and what it shows repeats"));
}

std::string why_unguided(const ResolvedRequest& r) {
  if (r.distilled) return "on a network of distilled guidance, which has no negative prompt";
  if (!r.options.rules.empty()) return "with --rules " + r.options.rules;
  return str("with --guidance ", r.options.guidance);
}

// What the first pass starts from.
void add_start(RunPass& pass, const TextToImageRequest& q, const LoadedModel& m) {
  if (!q.mask) add_unmasked(pass, m);
  if (!q.init) return;
  if (!q.mask) {
    Tensor picture = fitted(q.init->picture, q.size, q.init->fit);
    if (q.init->fit == FitRule::latent) picture = of_multiples(picture, pixel_multiple(m));
    pass.modes.push_back(init_mode(picture, pass.request));
    return;
  }
  require(q.init->fit != FitRule::latent, "generate: --fit latent has no effect with --mask");
  const InpaintPictures pictures =
      inpaint_pictures(*q.init, *q.mask, q.size, pass.request.options.dialect);
  pass.modes.push_back(init_mode(pictures.picture, pass.request));
  pass.modes.push_back(inpaint_mode(pictures, *q.mask, pass.request, channels_beside(m)));
}

PipelineOptions without_decoder(size_t plans) {
  return {.plans = plans, .decoder = Decoder{.name = "", .decode = {}}};
}

// Those of the request and of its prompt, checked against the checkpoint.
void resolve_loras(const CheckpointParts& parts, ResolvedTextToImage& r) {
  std::vector<LoraChoice> choices = r.request.loras;
  const text::Prompt prompt = text::parse_prompt(r.request.prompt, r.request.syntax);
  check_parts(prompt);
  for (const text::LoraTag& tag : prompt.loras)
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

void resolve_refiner_loras(const CheckpointParts& parts, ResolvedTextToImage& r) {
  if (r.request.refiner_loras.empty()) return;
  require(r.request.refine.has_value(),
          "generate: --refiner-lora has no effect without --refiner FILE");
  r.refiner_loras = open_loras(r.request.refiner_loras);
  for (const std::string& w :
       adapters::check(r.refiner_loras, refiner_networks(parts, r.encoders, r.refiner_encoders)))
    r.warnings.push_back(w);
}

// What is beside the passes' own options.
GenerateRequest images_of(const TextToImageRequest& q) {
  return {.classes = std::vector<int64_t>(static_cast<size_t>(q.count), -1),
          .first_image = q.first_image,
          .size = q.size,
          .prompted = true,
          .tiling = q.tiling};
}

// Of a network that edits a picture: it starts from noise.
RunPass edit_pass(const TextToImageRequest& q, const LoadedModel& m) {
  require(q.init.has_value(), "generate: the model edits a picture: --init FILE names it");
  const InitImage defaults;
  require(q.init->strength == defaults.strength && !q.init->exact_steps, "generate: --strength (",
          q.init->strength,
          ") and --exact-steps have no effect on a model that edits a picture, which starts from "
          "noise; --image-guidance says how much stays");
  require(q.init->fit != FitRule::latent,
          "generate: --fit latent has no effect on a model that edits a picture");
  require(!q.mask,
          "generate: --mask and --outpaint with a model that edits a picture are not "
          "there yet");
  require(!q.hires, "generate: --hires with a model that edits a picture is not there yet");
  require(!q.refine, "generate: --refiner with a model that edits a picture is not there yet");
  RunPass out{.request = resolve_edit(m, images_of(q), q.options, q.image_guidance)};
  out.modes.push_back(edit_mode(fitted(q.init->picture, q.size, q.init->fit), m, out.request));
  return out;
}

RunPass first_pass(const TextToImageRequest& q, const LoadedModel& m) {
  if (edits_images(m)) return edit_pass(q, m);
  require(q.image_guidance == default_image_guidance, "generate: --image-guidance (",
          q.image_guidance, ") has no effect on a model that does not edit pictures");
  GenerateRequest images = images_of(q);
  if (q.init) images.strength = q.init->strength, images.exact_steps = q.init->exact_steps;
  RunPass out{.request = resolve(m, images, q.options)};
  add_start(out, q, m);
  return out;
}

RunPass hires_pass(const TextToImageRequest& q, const CheckpointParts& parts) {
  const LoadedModel& m = parts.denoiser;
  require(!q.mask, "generate: --hires with --mask is not there yet");
  require(!q.refine, "generate: --hires with --refiner is not there yet");
  require(!q.hires->network || parts.hires_upscaler,
          "generate: --hires: no network was loaded from ", q.hires->upscaler);
  check(*q.hires);
  GenerateRequest large = images_of(q);
  large.size = hires_size(*q.hires, q.size, pixel_multiple(m));
  large.strength = q.hires->strength;
  large.exact_steps = picture_dialect(q.options.dialect).exact_steps;
  GenerateOptions options = q.options;
  if (q.hires->steps > 0) options.steps = q.hires->steps;
  RunPass pass{.request = resolve(m, large, options)};
  pass.modes.push_back(hires_mode(*q.hires, pass.request));
  if (picture_dialect(q.options.dialect).prompts_count_on) pass.steps_before = q.options.steps;
  add_unmasked(pass, m);
  return pass;
}

// Takes the last steps of the pass before.
RunPass refiner_pass(const TextToImageRequest& q, const CheckpointParts& parts, RunPass& first) {
  ResolvedRequest& before = first.request;
  require(parts.refiner.has_value(), "generate: a refiner needs its checkpoint: --refiner FILE");
  require(!q.mask, "generate: --refiner with --mask is not there yet");
  const int64_t step = refiner_step(before, parts.denoiser, *q.refine);
  const std::vector<double> sigmas = before.call.sigmas;
  RunPass pass{.request = on_levels(resolve(*parts.refiner, images_of(q), q.options),
                                    stretch_of(sigmas, {.first = step})),
               .refined = true};
  require(pass.request.sample == before.sample, "generate: --refiner makes ", pass.request.sample,
          ", and the model ", before.sample);
  first.handover = handover(before, parts.denoiser, *q.refine);
  before = on_levels(before, stretch_of(sigmas, {.last = step})), before.result_scale = 1;
  pass.modes.push_back(refine_mode(step, before.counts));
  require(!edits_images(*parts.refiner), "generate: --refiner is a model that edits pictures");
  check_beside(*parts.refiner, false, parts);
  add_unmasked(pass, *parts.refiner);
  return pass;
}

void add_control_warnings(ResolvedTextToImage& r, const LoadedModel& m) {
  if (r.request.controls.empty()) return;
  std::vector<ControlRun> runs;
  for (const RunPass& pass : r.passes)
    if (!pass.refined) runs.push_back(control_run(pass.run()));
  const Discretisation levels = Precond(m.diffusion).levels();
  std::ranges::move(control_warnings(r.request.controls, runs, levels),
                    std::back_inserter(r.warnings));
}

}  // namespace

ResolvedTextToImage resolve(const CheckpointParts& parts, const TextToImageRequest& request) {
  require(request.count > 0 && request.count <= 10000, "generate: --n must be 1 to 10000 (got ",
          request.count, ")");
  constexpr int64_t last_image = int64_t{1} << 62;
  require(request.first_image >= 0 && request.first_image <= last_image,
          "generate: --first-image must be 0 to 2^62 (got ", request.first_image, ")");
  require(!request.pixels || parts.autoencoder,
          "generate: the checkpoint has no autoencoder that makes pixels of latents; --vae FILE "
          "names one, and --out FILE.safetensors or FILE.npy takes the latents");
  const LoadedModel& m = parts.denoiser;
  require(
      !request.init || parts.autoencoder,
      "generate: --init needs an autoencoder, which the checkpoint lacks; --vae FILE names one");
  check_beside(m, request.mask.has_value() || request.outpaint != Outpaint{}, parts);
  check_controls(m, request.controls);
  if (!request.controls.empty())
    check_image_encoder(m, parts.image_encoder ? &*parts.image_encoder : nullptr);
  ResolvedTextToImage r{.request = request, .encoders = {}, .passes = {}, .warnings = {}};
  r.request.options.dialect = find_dialect(request.options.dialect).name;
  take_size(r.request, m);
  ChoiceTexts chosen = choose_open(r.request.options, parts);
  r.warnings = std::move(chosen.warnings), r.notes = std::move(chosen.notes);
  add_size_warning(r, m);
  const ClipSkip skip{request.clip_skip, r.request.options.dialect};
  r.encoders = encoder_rules(*m.model, m.config, parts.text_encoders, skip);
  if (skip.layer > 0 && std::ranges::none_of(r.encoders, [&](const EncoderRule& e) {
        return follows(e.reading, skip.dialect);
      }))
    r.warnings.push_back(str("--clip-skip has no effect: in dialect ", skip.dialect,
                             " the text encoders of ", r.encoders[0].family->name,
                             " do not follow it"));
  r.passes.push_back(first_pass(r.request, m));
  if (request.refine) {
    r.passes.push_back(refiner_pass(r.request, parts, r.passes[0]));
    r.refiner_encoders =
        encoder_rules(*parts.refiner->model, parts.refiner->config, parts.refiner_encoders, skip);
  }
  if (request.hires) r.passes.push_back(hires_pass(r.request, parts));
  const std::vector<std::string>& found = r.first().warnings;
  r.warnings.insert(r.warnings.end(), found.begin(), found.end());
  if (!request.negative.empty() && !r.first().guided)
    r.warnings.push_back("--negative has no effect " + why_unguided(r.first()));
  require(!request.init || !request.init->exact_steps ||
              picture_dialect(r.request.options.dialect).exact_steps,
          "generate: --exact-steps is A1111's option and has no effect in dialect ",
          r.request.options.dialect);
  add_control_warnings(r, m);
  resolve_loras(parts, r);
  resolve_refiner_loras(parts, r);
  return r;
}

void ResolvedTextToImage::set_batch(int64_t pictures) {
  for (RunPass& pass : passes) pass.request.batch = pass.request.options.batch = pictures;
}

Context TextToImage::hooked(const std::shared_ptr<Hooks>& hooks, Context c) {
  if (c.log)
    c.log = [hooks, log = std::move(c.log)](std::string_view line) {
      if (!hooks->quiet) log(line);
    };
  c.poll = [hooks] {
    if (hooks->poll) hooks->poll();
  };
  return c;
}

TextToImage::TextToImage(CheckpointParts parts, Context context, TextToImageOptions options)
    : parts_(std::move(parts)),
      context_(hooked(hooks_, std::move(context))),
      driver_bytes_(context_.device->driver_memory().first),
      options_(std::move(options)),
      vocabulary_(parts_.tokenizer.empty() ? text::builtin_clip_vocabulary()
                                           : text::ClipVocabulary::open(parts_.tokenizer)),
      pipeline_(parts_.denoiser, context_, without_decoder(options_.plans)) {
  if (options_.memory > 0)
    context_.memory->set_limit(std::max<int64_t>(options_.memory - driver_bytes_, 1));
  take_tiling({});
  if (parts_.refiner) refiner_.emplace(*parts_.refiner, context_, without_decoder(options_.plans));
}

RunConditions TextToImage::encoded(const ResolvedTextToImage& r, const RunPass& pass,
                                   const Tell& tell, std::vector<PlanNeeds>* sketch) {
  const TextToImageRequest& q = r.request;
  const LoadedModel& m = pass.refined ? *parts_.refiner : parts_.denoiser;
  const DType dtype = pipeline_.dtype_of(pass.request);
  const std::vector<EncoderRule>& rules = pass.refined ? r.refiner_encoders : r.encoders;
  Text& text_of = pass.refined ? refiner_text_ : text_;
  const ImageSize latents{.height = pass.request.sample[0], .width = pass.request.sample[1]};
  const int64_t factor = q.size.height / r.first().sample[0];
  if (!text_of.stage || text_of.dtype != dtype || text_of.layer != rules[0].reading.layer)
    text_of = {dtype, rules[0].reading.layer,
               std::make_unique<TextStage>(*m.model, m.config, rules, vocabulary_, dtype, context_,
                                           options_.embeddings)};
  const PictureDialect& dialect = picture_dialect(pass.request.options.dialect);
  const bool by_evaluation = dialect.prompts_count_evaluations;
  const PromptRequest prompts{
      .prompt = q.prompt,
      .negative = q.negative,
      .syntax = q.syntax,
      .steps = pass.request.options.steps,
      .before = pass.steps_before,
      .by_evaluation = by_evaluation,
      .evaluations = by_evaluation ? evaluations_of_step(dialect, pass.request.options.sampler) : 1,
      .late = dialect.prompts_count_evaluations ? 1 : 0,
      .fills_parts = dialect.fills_parts,
      .size = {.height = latents.height * factor, .width = latents.width * factor},
      .empty_negative =
          empty_negative(*rules.at(0).family, pass.request.options.dialect,
                         pass.refined ? parts_.refiner_zeros_for_empty : parts_.zeros_for_empty),
      .one_by_one = policy_.one_by_one};
  TextStage::Encoded text =
      sketch ? text_of.stage->sketch(prompts) : text_of.stage->encode(prompts);
  if (tell && &pass == r.passes.data())
    for (const std::string& w : text.warnings) tell("warning: " + w);
  if (!q.controls.empty() && !pass.refined) {
    ControlRun run = control_run(pass.run());
    std::optional<ImageEncoder> images;
    if (needs_image_encoder(parts_.denoiser)) {
      images.emplace(*parts_.image_encoder, dtype, context_);
      run.encode = [&](const Tensor& picture, const std::string& output) {
        if (!sketch) return images->encode(picture, output);
        sketch->push_back(images->needs(output));
        return images->sketch(output);
      };
    }
    add_controls(text.conditions, parts_.denoiser, q.controls, run);
    images.reset();
    if (parts_.image_encoder) parts_.image_encoder->weights->drop_unused(*context_.device);
  }
  return std::move(text.conditions);
}

// What the passes get beside the latents of the one before.
std::vector<RunInputs> TextToImage::prepared(const ResolvedTextToImage& r, RunMeter& meter,
                                             const Tell& tell) {
  std::vector<RunInputs> out;
  meter.show(Stage::text, 0);
  for (const RunPass& pass : r.passes) {
    out.push_back({.conditions = encoded(r, pass, tell)});
    context_.poll();
  }
  if (policy_.encoders_leave)
    for (TextStage* stage : text_stages()) stage->release();
  if (!options_.keeps_encoders) text_.stage.reset(), refiner_text_.stage.reset();
  meter.show(Stage::text, 1);
  const auto poll = [&](double) { meter.show(Stage::encoding, 0); };
  const RunTools with = tools(pipeline_.dtype_of(r.first()), {}, poll);
  for (size_t i = 0; i < out.size(); ++i)
    for (const auto& mode : r.passes[i].modes) mode->prepare(with, out[i]);
  if (r.request.init) meter.show(Stage::encoding, 1);
  return out;
}

// One picture at a time, so that each is there as soon as it can be.
void TextToImage::hand_out(std::span<const ResolvedTextToImage> requests,
                           std::span<const JoinedPicture> pictures, const Batch& batch,
                           RunSetup& run) {
  for (size_t i = 0; i < pictures.size(); ++i) {
    Picture out{.request = pictures[i].request,
                .index = pictures[i].index,
                .batch = batch.pictures,
                .batch_first = pictures[0].index,
                .pixels = {},
                .latents = image_at(batch.latents, static_cast<int64_t>(i)).clone()};
    const ResolvedTextToImage& r = requests[out.request];
    const auto show = [&](double share) {
      run.meter.show(Stage::decoding, (static_cast<double>(made_) + share) / run.count);
      return true;
    };
    if (r.request.pixels) show(0), out.pixels = pixels_of(r, stacked({out.latents}), show);
    if (run.events.picture) run.events.picture(std::move(out));
    ++made_;
    if (r.request.pixels) show(0);
  }
}

// The latents of the first batch of those that are left, through all passes.
Tensor TextToImage::sampled(const ResolvedTextToImage& r, const std::vector<RunInputs>& inputs,
                            const ImageRange& left, RunSetup& run) {
  const int64_t first = left.first, images = std::min(r.first().batch, left.end - first);
  const double all = work_.of_passes();
  Tensor latents;
  double before = 0;                    // work that is done, for a picture
  const auto show = [&](double work) {  // and so much more, of all of them
    const double done = (static_cast<double>(images) * before + work) / all;
    run.meter.show(Stage::sampling, (static_cast<double>(made_) + done) / run.count);
  };
  run.report.steps = run.report.evaluations = 0;
  for (size_t i = 0; i < r.passes.size(); ++i) {
    const RunPass& pass = r.passes[i];
    RunInputs in = inputs[i];
    in.together = policy_.together, in.hoisted_leaves = policy_.one_by_one;
    const RunTools with = tools(pipeline_.dtype_of(r.first()), work_.passes[i], show);
    for (const auto& mode : pass.modes) mode->begin(with, latents, in);
    before += work_.passes[i].before_steps();
    in.watch = step_;
    PassWork work = work_.passes[i];
    const auto progress = [&](double share) {
      show(static_cast<double>(images) * work.of_steps(share));
      return true;
    };
    Pipeline::Sampled out;
    if (pass.handover) {
      const RunPass& next = r.passes[++i];
      RunInputs after = inputs[i];
      for (const auto& mode : next.modes) mode->begin(with, latents, after);
      after.together = in.together, after.hoisted_leaves = in.hoisted_leaves;
      const std::vector<double>& theirs = work_.passes[i].steps;
      work.steps.insert(work.steps.end(), theirs.begin(), theirs.end());
      out = pipeline_.sample_handed_over(pass.request, first, in,
                                         {.whole = pass.run(),
                                          .pipeline = *refiner_,
                                          .request = next.request,
                                          .inputs = after,
                                          .at = pass.handover->at},
                                         progress);
    } else {
      out = pipeline_of(pass).sample(pass.request, first, in, progress);
    }
    if (policy_.one_by_one) pipeline_of(r.passes[i]).release();
    before += work.of_steps(), latents = out.samples;
    run.report.steps += out.steps;
    run.report.evaluations += out.evaluations;
  }
  // the last step's time
  run.meter.show(Stage::sampling, static_cast<double>(made_ + images) / run.count);
  if (policy_.denoiser_leaves && first + images >= r.request.count) release_denoisers();
  return latents.rows(0, images);
}

// What was planned may be missing in the end: others take memory, too. False: nothing is left to do
// about it.
bool TextToImage::take_less(ResolvedTextToImage& r) {
  std::string with = "one component at a time";
  const int64_t before = r.first().batch;
  if (r.free_batch()) {
    r.set_batch((before + 1) / 2);
    with = str(r.first().batch);
  } else if (!policy_.one_by_one) {
    policy_.encoders_leave = policy_.one_by_one = true;
  } else {
    return false;
  }
  release();
  if (tell_)
    tell_(str("warning: out of memory with ", before, before == 1 ? " picture" : " pictures",
              " at a time: goes on with ", with));
  return true;
}

// Where memory is short there may be fewer at a time.
void TextToImage::make(std::span<const ResolvedTextToImage> requests,
                       std::span<const JoinedPicture> pictures, const Sample& sample,
                       RunSetup& run) {
  while (!pictures.empty()) {
    Batch batch;
    try {
      batch = sample(pictures);
    } catch (const OutOfMemory&) {
      if (!take_less(run.r)) throw;
      continue;
    } catch (const NotFinite& e) {
      if (run.r.loras.empty() && run.r.refiner_loras.empty()) throw;
      explain_loss(run.r, e.what());
    }
    const auto made = static_cast<size_t>(batch.latents.shape()[0]);
    hand_out(requests, pictures.first(made), batch, run);
    pictures = pictures.subspan(made);
  }
}

// The last batch of a range is filled up as that of a request is, and what fills it is not handed
// out.
RunReport TextToImage::run(const ResolvedTextToImage& asked, const RunEvents& events,
                           const NextImages& next) {
  for (const std::string& note : asked.notes)
    if (events.tell) events.tell(note);
  ResolvedTextToImage r = asked;
  RunSetup setup(*this, r, events);
  const std::vector<RunInputs> inputs = prepared(r, setup.meter, tell_);
  const auto make_all = [&](const ImageRange& images) {
    std::vector<JoinedPicture> all;
    for (int64_t i = images.first; i < images.end; ++i) all.push_back({0, i});
    const auto sample = [&](std::span<const JoinedPicture> left) {
      return Batch{sampled(r, inputs, {left[0].index, images.end}, setup), r.first().batch};
    };
    make({&asked, 1}, all, sample, setup);
  };
  if (!next) make_all({0, r.request.count});
  for (ImageRange now; next && !(now = next(r.first().batch)).empty();) make_all(now);
  return setup.reported(*this);
}

}  // namespace ebb
