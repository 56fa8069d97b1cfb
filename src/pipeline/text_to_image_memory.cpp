// TextToImage: what a request takes of the device's memory, asked before anything runs.
#include <algorithm>

#include "pipeline/text_to_image.h"

namespace ebb {
namespace {

// The autoencoder's work on an image.
struct PixelWork {
  bool encodes = false;
  Shape shape;  // of pixels that are encoded, or of latents that are decoded
};

// A component of which one plan has memory at a time.
class OnePlan {
 public:
  explicit OnePlan(DeviceModel& device) : device_(device) {}
  void use(const Shape& size, const PlanNeeds& needs, bool leaves) {
    if (size_ && *size_ != size) leave();
    if (!size_) device_.take(needs);
    size_ = size, needs_ = needs;
    if (leaves) leave();
  }

 private:
  void leave() {
    device_.leave(needs_);
    size_.reset();
  }
  DeviceModel& device_;
  std::optional<Shape> size_;
  PlanNeeds needs_;
};

void leave(DeviceModel& device, const Pipeline::Needs& denoiser) {
  if (denoiser.hoisted) device.leave(*denoiser.hoisted);
  device.leave(denoiser.step);
}

std::vector<int64_t> smaller_than(int64_t largest, std::span<const int64_t> sides) {
  std::vector<int64_t> out;
  std::ranges::copy_if(sides, std::back_inserter(out), [&](int64_t s) { return s < largest; });
  return out;
}

}  // namespace

// What the stages of a run are asked for, found out by going through it with components that only
// note that: what they would give is zeros.
struct TextToImage::Sketch {
  std::vector<RunInputs> inputs;               // by pass
  std::vector<PlanNeeds> images;               // of image encoders, which leave after use
  std::vector<PixelWork> prepare;              // once
  std::vector<std::vector<PixelWork>> begins;  // by pass, once a batch
  Shape latents, pixels;                       // of one picture in the end
};

TextToImage::Sketch TextToImage::sketch(const ResolvedTextToImage& r) {
  const DType dtype = pipeline_.dtype_of(r.first());
  const int64_t factor = parts_.denoiser.model->latents(parts_.denoiser.config)->factor;
  Sketch out;
  std::vector<PixelWork>* noted = &out.prepare;
  const RunTools notes{.encode =
                           [&](const Tensor& pixels) {
                             noted->push_back({true, pixels.shape()});
                             return encoder(dtype).sketch(pixels.shape());
                           },
                       .decode =
                           [&](const Tensor& latents) {
                             const Shape& s = latents.shape();
                             noted->push_back({false, {1, s[1], s[2], s[3]}});
                             return Tensor(DType::f32, {s[0], s[1] * factor, s[2] * factor, 3});
                           },
                       .upscale = [](const Tensor& pixels, double) { return pixels; }};
  for (const RunPass& pass : r.passes) out.inputs.push_back({encoded(r, pass, {}, &out.images)});
  for (size_t i = 0; i < r.passes.size(); ++i)
    for (const auto& mode : r.passes[i].modes) mode->prepare(notes, out.inputs[i]);
  Tensor latents;
  for (size_t i = 0; i < r.passes.size(); ++i) {
    noted = &out.begins.emplace_back();
    for (const auto& mode : r.passes[i].modes) mode->begin(notes, latents, out.inputs[i]);
    const Shape& s = r.passes[i].request.sample;
    latents = Tensor(DType::f32, {r.first().batch, s[0], s[1], s[2]});
    out.latents = {1, s[0], s[1], s[2]};
  }
  out.pixels = {1, out.latents[1] * factor, out.latents[2] * factor, 3};
  return out;
}

std::vector<TextStage*> TextToImage::text_stages() const {
  std::vector<TextStage*> out;
  for (const Text* text : {&text_, &refiner_text_})
    if (text->stage) out.push_back(text->stage.get());
  return out;
}

void TextToImage::release_denoisers() {
  pipeline_.release();
  if (refiner_) refiner_->release();
}

void TextToImage::release() {
  for (TextStage* stage : text_stages()) stage->release();
  release_denoisers();
  if (pixels_.encoder) pixels_.encoder->release();
  if (pixels_.decoder) pixels_.decoder->release();
  if (upscaler_) upscaler_->release();
}

void TextToImage::text_stage(DeviceModel& device, const Sketch& s,
                             const MemoryPolicy& policy) const {
  device.begin("text");
  for (const TextStage* stage : text_stages())
    for (const auto& plans : stage->needs()) {
      for (const PlanNeeds& p : plans) device.take(p);
      if (policy.one_by_one)
        for (const PlanNeeds& p : plans) device.leave(p);
    }
  for (const PlanNeeds& p : s.images) device.take(p);
  for (const PlanNeeds& p : s.images) device.leave(p);
  if (policy.encoders_leave && !policy.one_by_one)
    for (const TextStage* stage : text_stages())
      for (const auto& plans : stage->needs())
        for (const PlanNeeds& p : plans) device.leave(p);
}

// In the order of run().
std::vector<StageMemory> TextToImage::stages(const ResolvedTextToImage& r, const Sketch& s,
                                             const MemoryPolicy& policy) {
  const DType dtype = pipeline_.dtype_of(r.first());
  std::vector<Pipeline::Needs> denoisers;
  for (size_t i = 0; i < r.passes.size(); ++i) {
    RunInputs in = s.inputs[i];
    in.together = !policy.together;
    pipeline_of(r.passes[i]).drop(r.passes[i].request, in);  // is not wanted any more
    in.together = policy.together;
    denoisers.push_back(pipeline_of(r.passes[i]).needs(r.passes[i].request, in));
  }
  DeviceModel device(context_.memory->used());
  text_stage(device, s, policy);
  OnePlan encoding(device), decoding(device), enlarging(device);
  const auto decode = [&](const Shape& latents) {
    const int64_t whole = LatentDecoder::sides(latents)[0];
    const int64_t side = policy.decoder_tile > 0 ? std::min(policy.decoder_tile, whole) : whole;
    decoding.use(latents, decoder(dtype).needs(latents, side), policy.one_by_one);
  };
  const auto work = [&](const std::vector<PixelWork>& all) {
    if (!all.empty()) device.begin("encoding");
    for (const PixelWork& w : all)
      if (w.encodes)
        encoding.use(w.shape, encoder(dtype).needs(w.shape, policy.decoder_tile),
                     policy.one_by_one);
      else
        decode(w.shape);
  };
  work(s.prepare);
  for (size_t i = 0; i < r.passes.size(); ++i) {
    work(s.begins[i]);
    device.begin("sampling");
    const auto& [step, hoisted] = denoisers[i];
    const auto hoist = [&] {
      if (!hoisted) return;
      device.take(*hoisted);
      if (policy.one_by_one) device.leave(*hoisted);
    };
    hoist();
    device.take(step);
    // a prompt that changes is encoded in between
    if (policy.one_by_one && s.inputs[i].conditions.steps.size() > 1) hoist();
    if (policy.one_by_one) device.leave(step);
  }
  if (!r.request.pixels) return std::move(device).stages();
  if (policy.denoiser_leaves && !policy.one_by_one && r.request.count <= r.first().batch)
    for (const Pipeline::Needs& n : denoisers) leave(device, n);
  device.begin("decoding");
  decode(s.latents);
  if (upscaler_) {
    device.begin("enlarging");
    const int64_t side = policy.upscaler_tile > 0 ? policy.upscaler_tile : Upscaler::sides()[0];
    const double scale =
        r.request.upscale > 0 ? r.request.upscale : static_cast<double>(upscaler_->scale());
    enlarging.use(s.pixels, upscaler_->needs(s.pixels, scale, side), policy.one_by_one);
  }
  return std::move(device).stages();
}

// Once a run, on entry. What earlier requests left on the device goes first where it is in the way.
RunMemory TextToImage::planned(const ResolvedTextToImage& r) {
  const Sketch s = sketch(r);
  const bool leave = !options_.keeps_encoders;
  // on the host it makes room for the files of others, and giving it back takes no time
  MemoryChoice choice{
      .first = {.encoders_leave = leave, .denoiser_leaves = leave && context_.device->on_host()},
      .guided = r.first().guided,
      .decoder_tiles = {},
      .upscaler_tiles = {},
      .stages = [&](const MemoryPolicy& p) { return stages(r, s, p); }};
  if (r.request.pixels) {
    const std::vector<int64_t> sides = LatentDecoder::sides(s.latents);
    if (!r.request.tiling.any()) choice.decoder_tiles.assign(sides.begin() + 1, sides.end());
    if (upscaler_) choice.upscaler_tiles = smaller_than(Upscaler::sides()[0], Upscaler::sides());
  }
  const auto limit = [&] { return context_.memory->used() + context_.free_memory(); };
  if (RunMemory{.policy = {}, .stages = choice.stages(choice.first)}.peak() > limit()) release();
  return choose_memory(choice, limit(), options_.memory > 0 ? "--memory" : "what is free");
}

}  // namespace ebb
