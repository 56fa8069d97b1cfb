// TextToImage: what a request takes of the device's memory, asked before anything runs.
#include <algorithm>

#include "base/error.h"
#include "pipeline/text_to_image_sketch.h"

namespace ebb {
namespace {

constexpr std::string_view stage_of(PixelWork::Kind kind) {
  constexpr std::string_view names[] = {"encoding", "decoding", "enlarging"};
  return names[static_cast<size_t>(kind)];
}

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

// A plan that lets go of its weights, of the rest, or of both.
struct Leaving {
  bool weights = true, rest = true;
  PlanNeeds of(const PlanNeeds& p) const {
    return {.own = rest ? p.own : 0,
            .weights = weights ? p.weights : WeightNeeds{},
            .arena = rest ? p.arena : 0};
  }
};

// The denoisers of a pass.
class PassModel {
 public:
  PassModel(std::vector<Pipeline::Needs> parts, bool one_by_one)
      : parts_(std::move(parts)), one_by_one_(one_by_one) {}

  // `beside`: what is taken while one of them has memory.
  void run(DeviceModel& device, const std::function<void()>& beside) {
    for (const Pipeline::Needs& n : parts_) {
      hoist(device, n);
      device.take(n.step);
      beside();
      // a prompt that changes is encoded in between
      if (one_by_one_ && n.hoists_again) hoist(device, n);
      if (one_by_one_ || parts_.size() > 1) leave(device, n, {.weights = one_by_one_});
    }
  }
  // All that run() left.
  void leave(DeviceModel& device) const {
    for (const Pipeline::Needs& n : parts_) leave(device, n, {.rest = parts_.size() == 1});
  }

 private:
  // What is computed once.
  void hoist(DeviceModel& device, const Pipeline::Needs& n) const {
    if (!n.hoisted) return;
    device.take(*n.hoisted);
    if (one_by_one_) device.leave(*n.hoisted);
  }
  void leave(DeviceModel& device, const Pipeline::Needs& n, const Leaving& what) const {
    if (n.hoisted && !one_by_one_) device.leave(what.of(*n.hoisted));
    device.leave(what.of(n.step));
  }

  std::vector<Pipeline::Needs> parts_;
  bool one_by_one_;
};

// Plans hold some memory as soon as they are there. Where a limit leaves no room for that, what the
// stages take is to be said all the same: it does not hold while they are made. May be of none.
class LiftedLimit {
 public:
  explicit LiftedLimit(DeviceMemory* memory)
      : memory_(memory), limit_(memory ? memory->limit() : 0) {
    if (memory_) memory_->set_limit(0);
  }
  ~LiftedLimit() {
    if (memory_) memory_->set_limit(limit_);
  }
  LiftedLimit(const LiftedLimit&) = delete;
  LiftedLimit& operator=(const LiftedLimit&) = delete;

 private:
  DeviceMemory* memory_;
  int64_t limit_;
};

// By what is wanted in any case. What earlier requests left on the device goes first where it is in
// the way. Plans hold some memory from the first time on that they are asked for, so a promise of
// another request is planned in the same order as its run.
RunMemory first_memory(const MemoryChoice& c, int64_t limit, const std::function<void()>& release) {
  RunMemory out{.policy = c.first, .stages = c.stages(c.first)};
  if (out.peak() <= limit) return out;
  release();
  out.stages = c.stages(c.first);
  return out;
}

// All stages have it.
std::vector<StageMemory> with_driver(std::vector<StageMemory> stages, int64_t bytes) {
  if (bytes > 0) stages.insert(stages.begin(), {"driver", bytes, 0});
  return stages;
}

// Behind the first one, which is the largest.
std::vector<int64_t> smaller(std::span<const int64_t> sides) {
  return {sides.begin() + 1, sides.end()};
}

}  // namespace

TextToImage::Sketch TextToImage::sketch(const ResolvedTextToImage& r) {
  const DType dtype = pipeline_.dtype_of(r.first());
  const int64_t factor = parts_.denoiser.model->latents(parts_.denoiser.config)->factor;
  Sketch out;
  std::vector<PixelWork>* noted = &out.prepare;
  const RunTools notes{.encode =
                           [&](const Tensor& pixels) {
                             noted->push_back({PixelWork::Kind::encode, pixels.shape()});
                             return encoder(dtype).sketch(pixels.shape());
                           },
                       .decode =
                           [&](const Tensor& latents) {
                             const Shape& s = latents.shape();
                             noted->push_back({PixelWork::Kind::decode, {1, s[1], s[2], s[3]}});
                             return Tensor(DType::f32, {s[0], s[1] * factor, s[2] * factor, 3});
                           },
                       .upscale =
                           [&](const Tensor& pixels, double scale) {
                             noted->push_back({PixelWork::Kind::enlarge, pixels.shape(), scale});
                             return Tensor(DType::f32, Upscaler::scaled(pixels.shape(), scale));
                           }};
  for (const RunPass& pass : r.passes) {
    context_.poll();
    out.inputs.push_back({encoded(r, pass, {}, &out.images)});
  }
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
  for (Upscaler* u : {upscaler_.get(), hires_upscaler_.get()})
    if (u) u->release();
  if (const auto small = preview_decoder_.lock()) small->release();
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

// What the components behind and between the denoiser's runs take.
class TextToImage::PixelModel {
 public:
  PixelModel(TextToImage& of, DeviceModel& device, DType dtype, const MemoryPolicy& policy)
      : of_(of),
        device_(device),
        dtype_(dtype),
        policy_(policy),
        preview_decoder_(of.step_ ? of.preview_decoder_.lock() : nullptr) {}

  void run(const std::vector<PixelWork>& all) {
    for (const auto& [kind, shape, scale] : all) {
      of_.context_.poll();
      device_.begin(stage_of(kind));
      if (kind == PixelWork::Kind::encode)
        encoding_.use(shape, of_.encoder(dtype_).needs(shape, policy_.decoder_tile),
                      policy_.one_by_one);
      else if (kind == PixelWork::Kind::decode)
        decode(shape);
      else
        between_.use(shape, of_.hires_upscaler_->needs(shape, scale, policy_.upscaler_tile), true);
    }
  }
  void decode(const Shape& latents) {
    of_.context_.poll();
    decoding_.use(latents, of_.decoder(dtype_).needs(latents, policy_.decoder_tile),
                  policy_.one_by_one);
  }
  // `scale` 0: the network's own.
  void enlarge(const Shape& pixels, double scale) {
    const double times = scale > 0 ? scale : static_cast<double>(of_.upscaler_->scale());
    enlarging_.use(pixels, of_.upscaler_->needs(pixels, times, policy_.upscaler_tile),
                   policy_.one_by_one);
  }
  void preview(const Shape& sample) {
    if (!preview_decoder_) return;
    const Shape latents = {1, sample[0], sample[1], sample[2]};
    previewing_.use(latents, preview_decoder_->needs(latents, policy_.decoder_tile),
                    policy_.one_by_one);
  }

 private:
  TextToImage& of_;
  DeviceModel& device_;
  DType dtype_;
  const MemoryPolicy& policy_;
  std::shared_ptr<LatentDecoder> preview_decoder_;
  OnePlan encoding_{device_}, decoding_{device_}, between_{device_}, enlarging_{device_},
      previewing_{device_};
};

// In the order of run().
std::vector<StageMemory> TextToImage::stages(const ResolvedTextToImage& r, const Sketch& s,
                                             const MemoryPolicy& policy) {
  const DType dtype = pipeline_.dtype_of(r.first());
  std::vector<PassModel> denoisers;
  for (size_t i = 0; i < r.passes.size(); ++i) {
    RunInputs in = s.inputs[i];
    in.together = !policy.together;
    pipeline_of(r.passes[i]).drop(r.passes[i].request, in);  // is not wanted any more
    in.together = policy.together;
    context_.poll();
    denoisers.emplace_back(pipeline_of(r.passes[i]).needs(r.passes[i].request, in),
                           policy.one_by_one);
  }
  DeviceModel device(context_.memory->used() + driver_bytes_);
  text_stage(device, s, policy);
  PixelModel pixels(*this, device, dtype, policy);
  pixels.run(s.prepare);
  for (size_t i = 0; i < r.passes.size(); ++i) {
    pixels.run(s.begins[i]);
    device.begin("sampling");
    denoisers[i].run(device, [&] { pixels.preview(r.passes[i].request.sample); });
  }
  if (!r.request.pixels) return with_driver(std::move(device).stages(), driver_bytes_);
  if (policy.denoiser_leaves && !policy.one_by_one && r.request.count <= r.first().batch)
    for (const PassModel& denoiser : denoisers) denoiser.leave(device);
  device.begin(stage_of(PixelWork::Kind::decode));
  pixels.decode(s.latents);
  if (upscaler_) {
    device.begin(stage_of(PixelWork::Kind::enlarge));
    pixels.enlarge(s.pixels, r.request.upscale);
  }
  return with_driver(std::move(device).stages(), driver_bytes_);
}

// With the bytes that are taken: what else lies on the device is the same then.
TextToImage::StagesOf TextToImage::stages_of(const ResolvedTextToImage& r, const Sketch& s) {
  StagesOf out{.shapes = {s.latents, s.pixels}};
  const auto add = [&](auto number) { out.numbers.push_back(static_cast<double>(number)); };
  add(context_.memory->used()), add(r.request.pixels), add(r.request.upscale);
  add(r.request.count <= r.first().batch);
  add(step_ ? preview_decoder_.use_count() : 0);
  for (const PlanNeeds& n : s.images) add(n.bytes());
  const auto add_pixels = [&](const std::vector<PixelWork>& all) {
    add(all.size());
    for (const PixelWork& w : all)
      add(static_cast<int>(w.kind)), add(w.scale), out.shapes.push_back(w.shape);
  };
  add_pixels(s.prepare);
  for (size_t i = 0; i < r.passes.size(); ++i) {
    add_pixels(s.begins[i]);
    const Pipeline& pipeline = pipeline_of(r.passes[i]);
    add(pipeline.model().weights ? pipeline.model().weights->version() : 0);
    std::ranges::move(pipeline.plans_of(r.passes[i].request, s.inputs[i]),
                      std::back_inserter(out.denoisers));
  }
  for (const TextStage* stage : text_stages()) add(stage->plans()), add(stage->weights_version());
  return out;
}

// Plans hold some memory as soon as they are there.
void TextToImage::drop_plans(const ResolvedTextToImage& r, const Sketch& s) {
  for (size_t i = 0; i < r.passes.size(); ++i)
    for (const bool together : {true, false}) {
      RunInputs in = s.inputs[i];
      in.together = together;
      pipeline_of(r.passes[i]).drop(r.passes[i].request, in);
    }
}

// By the name of the dtype. f32 may take less: on a processor its weights are those of the file.
std::vector<std::pair<std::string, int64_t>> TextToImage::peaks_in_other_dtypes(
    const ResolvedTextToImage& r, const Sketch& s, int64_t limit) {
  drop_plans(r, s);
  std::vector<std::pair<std::string, int64_t>> out;
  const DType own = pipeline_.dtype_of(r.first());
  hooks_->quiet = true;
  const std::shared_ptr<void> loud(nullptr, [this](void*) { hooks_->quiet = false; });
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    if (dtype == own) continue;
    ResolvedTextToImage other = r;
    for (RunPass& pass : other.passes) pass.request.dtype = dtype;
    out.emplace_back(name_of(dtype), smallest_peak(other, limit));
  }
  return out;
}

// With all measures that it needs, as if it were the first request.
int64_t TextToImage::smallest_peak(const ResolvedTextToImage& r, int64_t limit) {
  release();
  const Sketch s = sketch(r);
  const MemoryChoice choice = measures(r, s);
  int64_t out = first_memory(choice, limit, [this] { release(); }).peak();
  if (out > limit) out = smallest_memory(choice, limit).peak();
  drop_plans(r, s);
  return out;
}

// The request with fewer pictures at a time, and with smaller ones of its ratio: the first of each
// that fits.
std::vector<std::pair<std::string, int64_t>> TextToImage::fitting_requests(
    const ResolvedTextToImage& r, const Sketch& s, int64_t limit) {
  drop_plans(r, s);
  std::vector<std::pair<std::string, int64_t>> out;
  const auto add = [&](const ResolvedTextToImage& other, const std::string& flag) {
    const int64_t peak = smallest_peak(other, limit);
    if (peak <= limit) out.emplace_back(flag, peak);
    return peak <= limit;
  };
  hooks_->quiet = true;
  const std::shared_ptr<void> loud(nullptr, [this](void*) { hooks_->quiet = false; });
  for (int64_t batch = r.first().batch / 2; batch > 0; batch /= 2) {
    ResolvedTextToImage other = r;
    other.set_batch(batch);
    if (add(other, str("--batch ", batch))) break;
  }
  if (r.request.outpaint != Outpaint{}) return out;  // says the size
  constexpr int64_t step = 64;                       // that all networks take
  for (const int64_t share : {6, 4, 2, 1}) {         // of 8
    const auto side = [&](int64_t n) { return std::max(step, n * share / 8 / step * step); };
    TextToImageRequest q = r.request;
    q.size = {.height = side(q.size.height), .width = side(q.size.width)};
    if (q.size.height >= r.request.size.height || q.size.width >= r.request.size.width) break;
    std::optional<ResolvedTextToImage> other;
    try {
      other = resolve(q);
    } catch (const Error&) {  // too small for the rest of the request
      break;
    }
    other->set_batch(r.first().batch);
    if (add(*other, str("--size ", q.size.width, 'x', q.size.height))) break;
  }
  return out;
}

MemoryChoice TextToImage::measures(const ResolvedTextToImage& r, const Sketch& s) {
  const bool leave = !options_.keeps_encoders;
  // on the host it makes room for the files of others, and giving it back takes no time
  MemoryChoice choice{
      .first = {.encoders_leave = leave, .denoiser_leaves = leave && context_.device->on_host()},
      .guided = r.first().guided,
      .batch = r.first().batch,
      .decoder_tiles = {},
      .upscaler_tiles = {},
      .stages = [&](const MemoryPolicy& p) { return stages(r, s, p); }};
  choice.dtypes = [&](int64_t limit) { return peaks_in_other_dtypes(r, s, limit); };
  choice.fitting = [&](int64_t limit) { return fitting_requests(r, s, limit); };
  choice.decoder_tiles = smaller(LatentDecoder::sides(s.latents));
  if (upscaler_ || hires_upscaler_) choice.upscaler_tiles = smaller(Upscaler::sides());
  return choice;
}

// Where not as many pictures at a time fit as were meant. Batches are as equal as can be.
RunMemory TextToImage::fit_batch(ResolvedTextToImage& r, const Sketch& s, int64_t limit) {
  const int64_t meant = r.first().batch;
  const auto change_to = [&](int64_t pictures) {
    if (pictures != r.first().batch) drop_plans(r, s);
    r.set_batch(pictures);
  };
  change_to(1);
  const MemoryPolicy policy =
      choose_memory(measures(r, s), limit, options_.memory > 0 ? "--memory" : "what is free")
          .policy;
  const auto memory = [&](int64_t pictures) {
    change_to(pictures);
    return RunMemory{.policy = policy, .stages = stages(r, s, policy)};
  };
  const int64_t most =
      memory(meant).peak() <= limit
          ? meant
          : largest_batch(meant, limit, [&](int64_t n) { return memory(n).peak(); });
  const int64_t equal = equal_batch(r.request.count, most);
  if (tell_ && equal < meant)
    tell_(str("generate: memory is short: makes ", equal, equal == 1 ? " picture" : " pictures",
              " at a time"));
  return memory(equal);
}

// Of all that is taken, in bytes; the same while LiftedLimit is there. It asks the driver.
int64_t TextToImage::limit() const {
  const int64_t device = driver_bytes_ + context_.memory->used() + context_.free_memory();
  return options_.memory > 0 ? std::min(options_.memory, device) : device;
}

// Once a run, on entry.
RunMemory TextToImage::planned(ResolvedTextToImage& r) {
  const LiftedLimit lifted(options_.memory > 0 ? context_.memory.get() : nullptr);
  const Sketch s = sketch(r);
  const int64_t most = limit();
  StagesOf of = stages_of(r, s);
  if (planned_ && planned_->of == of && planned_->memory.peak() <= most) return planned_->memory;
  planned_.reset();
  const MemoryChoice choice = measures(r, s);
  RunMemory memory = first_memory(choice, most, [this] { release(); });
  if (memory.peak() <= most) {
    planned_ = {std::move(of), memory};
    return memory;
  }
  if (r.free_batch()) return fit_batch(r, s, most);
  return choose_memory(choice, most, options_.memory > 0 ? "--memory" : "what is free");
}

}  // namespace ebb
