// TextToImage: pictures of several requests in one batch.
#include <algorithm>

#include "base/error.h"
#include "pipeline/decoder.h"
#include "pipeline/joined_inputs.h"
#include "pipeline/run_start.h"
#include "pipeline/text_to_image_sketch.h"

namespace ebb {
namespace {

// Whether a picture of the sampler is its own whatever the batch: where steps are chosen by the
// error of all, or noise is clipped by the deviation of all, it is not.
bool is_by_image(const ChosenSampler& s) {
  const auto clip = std::ranges::find(s.options, "noise_clip_std",
                                      [](const auto& o) { return std::string_view(o.first); });
  return !s.sampler->adaptive && (clip == s.options.end() || clip->second == "0");
}

std::string text_of(GenerateOptions o) {
  o.seed = 0, o.batch = 0;
  return fields_text(fields_of(o));
}

bool same_runs(const ResolvedRequest& a, const ResolvedRequest& b) {
  return is_by_image(a.sampler) && text_of(a.options) == text_of(b.options) &&
         a.sample == b.sample && a.call.sigmas == b.call.sigmas && a.guided == b.guided &&
         a.dtype == b.dtype && a.tiling == b.tiling && a.noise_options == b.noise_options;
}

bool same_passes(const RunPass& a, const RunPass& b) {
  return a.refined == b.refined && a.handover.has_value() == b.handover.has_value() &&
         a.steps_before == b.steps_before && same_runs(a.request, b.request);
}

bool same_loras(const std::vector<adapters::AdapterUse>& a,
                const std::vector<adapters::AdapterUse>& b) {
  return std::ranges::equal(a, b, [](const adapters::AdapterUse& x, const adapters::AdapterUse& y) {
    return x.file->identity() == y.file->identity() && x.strength == y.strength &&
           x.text_strength == y.text_strength && x.blocks.empty() && y.blocks.empty();
  });
}

bool same_hires(const std::optional<Hires>& a, const std::optional<Hires>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->scale == b->scale && a->upscaler == b->upscaler && a->strength == b->strength;
}

}  // namespace

bool TextToImage::can_join(const ResolvedTextToImage& a, const ResolvedTextToImage& b) {
  if (!std::ranges::equal(a.passes, b.passes, same_passes) || !same_loras(a.loras, b.loras) ||
      !same_loras(a.refiner_loras, b.refiner_loras) ||
      !same_hires(a.request.hires, b.request.hires) || a.request.pixels != b.request.pixels)
    return false;
  for (const ResolvedTextToImage* r : {&a, &b})
    if (r->request.count > 1 && !noise_is_by_image(r->first())) return false;
  take_tiling(a.request.tiling);
  const Sketch first = sketch(a), second = sketch(b);
  return std::ranges::equal(first.inputs, second.inputs, ebb::can_join);
}

// As one request, whose pictures have noise of their own keys.
ResolvedTextToImage TextToImage::batch_of(std::span<const ResolvedTextToImage> requests,
                                          std::span<const JoinedPicture> pictures) const {
  ResolvedTextToImage out = requests[0];
  out.request.options.batch = 0, out.request.count = 0;
  for (const ResolvedTextToImage& r : requests) out.request.count += r.request.count;
  for (size_t i = 0; i < out.passes.size(); ++i) {
    ResolvedRequest& pass = out.passes[i].request;
    pass.classes.assign(pictures.size(), -1);
    pass.keys.clear();
    for (const JoinedPicture& p : pictures) {
      const ResolvedRequest& own = requests[p.request].passes[i].request;
      pass.keys.push_back({uint64_t{own.options.seed}, own.first_image + p.index});
    }
  }
  out.set_batch(std::ssize(pictures));
  return out;
}

void TextToImage::run_joined(std::span<const ResolvedTextToImage> requests,
                             const JoinedEvents& events, const NextJoined& next) {
  std::vector<JoinedPicture> now;
  for (size_t i = 0; i < requests.size(); ++i)
    for (int64_t k = 0; k < requests[i].request.count; ++k) now.push_back({i, k});
  ResolvedTextToImage r = batch_of(requests, now);
  tell_ = [&](const std::string& text) {
    for (size_t i = 0; events.tell && i < requests.size(); ++i) events.tell(i, text);
  };
  step_ = events.step;
  for (size_t i = 0; events.tell && i < requests.size(); ++i)
    for (const std::string& note : requests[i].notes) events.tell(i, note);
  take_tiling(r.request.tiling);
  work_ = run_work(parts_, r);
  RunMeter meter(work_.of_run(r.request.count, r.request.init.has_value()), events.progress);
  hooks_->poll = [&meter] { meter.poll(); };
  const std::shared_ptr<void> polled(nullptr, [this](void*) { hooks_->poll = {}; });
  apply_loras(r);
  policy_ = planned(r).policy;
  std::vector<std::vector<RunInputs>> inputs;
  for (size_t i = 0; i < requests.size(); ++i) {
    RunEvents own;
    if (events.tell) own.tell = [&, i](const std::string& text) { events.tell(i, text); };
    inputs.push_back(prepared(requests[i], meter, own));
  }
  RunReport report;
  for (made_ = 0; !(now = next(r.first().batch)).empty();) {
    const ResolvedTextToImage batch = batch_of(requests, now);
    std::vector<RunInputs> rows;
    for (size_t pass = 0; pass < r.passes.size(); ++pass) {
      std::vector<const RunInputs*> of;
      for (const JoinedPicture& p : now) of.push_back(&inputs[p.request][pass]);
      rows.push_back(joined(of));
    }
    const Tensor latents = sampled(batch, rows, {0, std::ssize(now)}, meter, report);
    for (size_t i = 0; i < now.size(); ++i, ++made_) {
      Picture out{.request = now[i].request,
                  .index = now[i].index,
                  .batch = std::ssize(now),
                  .pixels = {},
                  .latents = image_at(latents, static_cast<int64_t>(i)).clone()};
      finish(requests[out.request], out, batch.request.count, meter);
      events.picture(std::move(out));
    }
  }
}

}  // namespace ebb
