// TextToImage: pictures of several requests in one batch.
#include <algorithm>

#include "base/error.h"
#include "pipeline/decoder.h"
#include "pipeline/joined_inputs.h"
#include "pipeline/run_setup.h"
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

TextToImage::Joins TextToImage::joins(ResolvedTextToImage lead) {
  const auto first = std::make_shared<const ResolvedTextToImage>(std::move(lead));
  std::optional<Sketch> of_lead;  // once one is asked about that is not unlike it at first sight
  return [this, first, of_lead](const ResolvedTextToImage& other) mutable {
    const ResolvedTextToImage& lead = *first;
    if (!std::ranges::equal(lead.passes, other.passes, same_passes) ||
        !same_loras(lead.loras, other.loras) ||
        !same_loras(lead.refiner_loras, other.refiner_loras) ||
        !same_hires(lead.request.hires, other.request.hires) ||
        lead.request.pixels != other.request.pixels)
      return false;
    for (const ResolvedTextToImage* r : {&lead, &other})
      if (r->request.count > 1 && !noise_is_by_image(r->first())) return false;
    take_tiling(lead.request.tiling);
    if (!of_lead) of_lead = sketch(lead);
    return std::ranges::equal(of_lead->inputs, sketch(other).inputs, ebb::can_join);
  };
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

RunReport TextToImage::run_joined(std::span<const ResolvedTextToImage> requests,
                                  const JoinedEvents& events, const NextJoined& next) {
  const auto tell_of = [&](size_t i) {
    return Tell([&, i](const std::string& text) {
      if (events.tell) events.tell(i, text);
    });
  };
  std::vector<JoinedPicture> now;
  for (size_t i = 0; i < requests.size(); ++i)
    for (const std::string& note : requests[i].notes) tell_of(i)(note);
  for (size_t i = 0; i < requests.size(); ++i)
    for (int64_t k = 0; k < requests[i].request.count; ++k) now.push_back({i, k});
  ResolvedTextToImage r = batch_of(requests, now);
  const auto tell_all = [&](const std::string& text) {
    for (size_t i = 0; i < requests.size(); ++i) tell_of(i)(text);
  };
  RunSetup setup(*this, r,
                 {.progress = events.progress,
                  .picture = events.picture,
                  .step = events.step,
                  .tell = tell_all});
  std::vector<std::vector<RunInputs>> inputs;
  for (size_t i = 0; i < requests.size(); ++i)
    inputs.push_back(prepared(requests[i], setup.meter, tell_of(i)));
  const auto sample = [&](std::span<const JoinedPicture> left) {
    const auto most = static_cast<size_t>(r.first().batch);
    const std::span<const JoinedPicture> some = left.first(std::min(most, left.size()));
    std::vector<RunInputs> rows;
    for (size_t pass = 0; pass < r.passes.size(); ++pass) {
      std::vector<const RunInputs*> of;
      for (const JoinedPicture& p : some) of.push_back(&inputs[p.request][pass]);
      rows.push_back(joined(of));
    }
    const int64_t pictures = std::ssize(some);
    return Batch{sampled(batch_of(requests, some), rows, {0, pictures}, setup), pictures};
  };
  while (!(now = next(r.first().batch)).empty()) make(requests, now, sample, setup);
  return setup.reported(*this);
}

}  // namespace ebb
