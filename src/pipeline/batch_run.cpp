#include "pipeline/batch_run.h"

#include <algorithm>
#include <utility>

#include "diffusion/solver/host_latents.h"
#include "diffusion/solver/sampler_names.h"
#include "pipeline/known_latents.h"
#include "pipeline/picture_dialect.h"
#include "pipeline/run_start.h"

namespace ebb {
namespace {

// Those of now, where they are others than `given`.
void set_conditions(Denoiser& d, const RunConditions& conditions, const RunClock& now,
                    const RunConditions::Steps*& given) {
  if (conditions.empty() || given == &now.of(conditions)) return;
  const RunConditions::Steps* before = std::exchange(given, &now.of(conditions));
  const int64_t batch = d.options().batch;
  for (const nn::Condition& c : d.options().conditions) {
    if (!given->values().contains(c.name)) continue;
    // What is the same stays, and with it what was computed of it.
    if (before && std::ranges::equal(before->branches, given->branches,
                                     [&](const NamedTensors& a, const NamedTensors& b) {
                                       return a.at(c.name).raw() == b.at(c.name).raw();
                                     }))
      continue;
    std::vector<Tensor> others;
    for (size_t b = 1; b < given->branches.size() && c.guided && d.options().guided(); ++b)
      others.push_back(repeated(given->branches[b].at(c.name), batch));
    d.condition(c.name, repeated(given->values().at(c.name), batch), others);
  }
}

void set_classes(Denoiser& d, const ResolvedRequest& r, int64_t first) {
  if (std::ranges::none_of(d.options().conditions,
                           [](const nn::Condition& c) { return c.name == nn::class_id; }))
    return;
  std::vector<int64_t> classes;
  for (int64_t i = 0; i < r.batch; ++i)
    classes.push_back(r.classes[static_cast<size_t>(std::min(first + i, r.count() - 1))]);
  d.condition(nn::class_id, tensor_of(classes, {r.batch}));
}

void set_distilled(Denoiser& d, const ResolvedRequest& r) {
  if (!r.distilled) return;
  Tensor scale(DType::f32, {r.batch});
  std::ranges::fill(scale.span<float>(), static_cast<float>(*r.distilled));
  d.condition(nn::guidance_scale, scale);
}

// What a guidance of 1 is to the sampler.
double guidance_unit(const GenerateOptions& o) {
  return means_sampler("ddim_cfg_pp", o.sampler) ? picture_dialect(o.dialect).ddim_cfg_pp_unit : 1;
}

// What stays the same during a run.
void set_run(Denoiser& d, const ResolvedRequest& r, const RunInputs& inputs, int64_t first) {
  set_classes(d, r, first);
  set_distilled(d, r);
  if (const auto weights = inputs.conditions.weights(); d.options().guided() || weights[0] != 1)
    d.weigh(weights);
  // Rules may remember a run: each has its own.
  if (r.rules.empty())
    d.guidance(r.guided ? r.options.guidance * guidance_unit(r.options) : 1);
  else
    d.guide(r.rules, {.sigmas = r.call.sigmas, .space = r.call.space});
}

State scaled(const ResolvedRequest& r, State x) {
  for (double& v : x) v *= r.result_scale;
  return x;
}

// Vectors of another, which say when they are evaluated.
class WatchedLatents : public Latents {
 public:
  WatchedLatents(Latents& of, std::function<void()> before) : of_(of), before_(std::move(before)) {}

  Denoised denoise(Latent& x, double sigma, bool with_uncond) override {
    before_();
    return of_.denoise(x, sigma, with_uncond);
  }
  Latent noise(const NoiseDraw& draw, double clip) override { return of_.noise(draw, clip); }
  State values(const Latent& x) override { return of_.values(x); }
  double distance(const Latent& a, const Latent& b, const Latent& before, Tolerance t) override {
    return of_.distance(a, b, before, t);
  }
  void check_end(const Latent& x) override { of_.check_end(x); }

 private:
  Latents& of_;
  std::function<void()> before_;
};

// The run's call, which tells of each step of `latents`. Refers to everything but `r.call`.
SampleCall watched_call(const ResolvedRequest& r, const RunInputs& inputs, int64_t first,
                        Latents& latents, RunClock& clock, const BatchProgress& progress) {
  SampleCall call = r.call;
  call.progress = [&, first](const Progress& p) {
    if (inputs.watch)
      inputs.watch(
          {p.step, p.steps, [&] { return images_of(latents.values(p.denoised), r, first); }});
    clock.end_step();
    return progress(p);
  };
  return call;
}

}  // namespace

Tensor images_of(const State& x, const ResolvedRequest& r, int64_t first) {
  const int64_t images = std::min(r.batch, r.count() - first);
  Tensor out(DType::f32, {images, r.sample[0], r.sample[1], r.sample[2]});
  const auto to = out.span<float>();
  std::transform(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(to.size()), to.begin(),
                 [](double v) { return static_cast<float>(v); });
  return out;
}

State run_switching(const NextEvaluator& next, const ResolvedRequest& r, const RunInputs& inputs,
                    int64_t first, const BatchProgress& progress, int64_t& evaluations) {
  const NoiseCall keys = noise_keys(r, first);
  const Start start = start_of(r, inputs, keys);
  RunClock clock(inputs);
  std::optional<Evaluator> by;
  const RunConditions::Steps* given = nullptr;
  const auto denoise = [&](std::span<const double> x, double sigma, std::span<double> denoised,
                           std::span<double> uncond) {
    clock.begin_evaluation();
    ++evaluations;
    if (const auto other = next(clock, sigma)) {
      by = other, given = nullptr;
      set_run(*by->denoiser, *by->request, *by->inputs, first);
    }
    const RunConditions& conditions = by->inputs->conditions;
    set_conditions(*by->denoiser, conditions, clock, given);
    Latent in = by->denoiser->put(x);
    const Denoised out = by->denoiser->denoise(in, sigma, !uncond.empty());
    std::ranges::copy(by->denoiser->values(out.guided), denoised.begin());
    if (!uncond.empty()) std::ranges::copy(by->denoiser->values(out.uncond), uncond.begin());
  };
  HostLatents<double> vectors(static_cast<size_t>(keys.batch() * keys.elements()), denoise,
                              start.step);
  const SampleCall call = watched_call(r, inputs, first, vectors, clock, progress);
  return scaled(r, vectors.values(sample(r.sampler, vectors,
                                         vectors.put(first_state(r, inputs, keys, start)), call)));
}

State run_batch(Denoiser& d, const ResolvedRequest& r, const RunInputs& inputs, int64_t first,
                const BatchProgress& progress) {
  const NoiseCall keys = noise_keys(r, first);
  set_run(d, r, inputs, first);
  const Start start = start_of(r, inputs, keys);
  if (d.options().draws)
    d.draw_by(keys.seed, keys.images);
  else
    d.noise_from(start.step);
  RunClock clock(inputs);
  const RunConditions::Steps* given = nullptr;
  const SampleCall call = watched_call(r, inputs, first, d, clock, progress);
  const auto sampled = [&](Latents& by) {
    WatchedLatents watched(by, [&] {
      clock.begin_evaluation();
      set_conditions(d, inputs.conditions, clock, given);
    });
    return d.values(sample(r.sampler, watched, d.put(first_state(r, inputs, keys, start)), call));
  };
  if (!inputs.known) return scaled(r, sampled(d));
  const Inpaint<double> how = inpaint_of(r, *inputs.known, start, keys);
  State x;
  if (r.rules.empty()) {
    if (d.restores())
      d.restore({.mask = how.mask, .data = how.data, .noise = how.noise, .space = how.space});
    x = sampled(d);
  } else {  // which run on the host, on predictions that are not restored yet
    KnownLatents known(d, how);
    x = sampled(known);
  }
  x = scaled(r, std::move(x));
  if (inputs.known->where.end) blend<double>(how.data, how.mask, x);
  return x;
}

}  // namespace ebb
