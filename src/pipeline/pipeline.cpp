#include "pipeline/pipeline.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "core/host_memory.h"
#include "core/out_of_memory.h"
#include "diffusion/solver/host_latents.h"
#include "pipeline/condition_sets.h"
#include "pipeline/control.h"
#include "pipeline/known_latents.h"
#include "pipeline/run_dtype.h"
#include "pipeline/step_progress.h"

namespace ebb {
namespace {

// Throws Error if states and pictures of a request, with the plan's vectors and arena where these
// are the host's, do not fit.
void check_memory(const ResolvedRequest& r, const Denoiser& d, const Device& device) {
  const int64_t numbers = r.batch * r.sample.numel();
  constexpr int64_t of_states = 2 * sizeof(double) + sizeof(float);
  constexpr int64_t of_pictures = sizeof(float) + 2;  // and bytes, twice: as a grid
  int64_t bytes = numbers * of_states + r.sample.numel() * r.count() * of_pictures;
  if (device.on_host())
    bytes +=
        d.missing_bytes() + d.options().vectors * numbers * static_cast<int64_t>(sizeof(float));
  const int64_t free = free_host_memory();
  require(bytes <= free, "sample: out of memory: ", r.batch, " at a time of --n ", r.count(),
          " need ", bytes / 1000000, " MB, and ", free / 1000000,
          " MB are free; a smaller --batch or --n needs less");
}

// Those of a step, 1 and on, where they are others than `given`.
void set_conditions(Denoiser& d, const RunConditions& conditions, int64_t step,
                    const RunConditions::Steps*& given) {
  if (conditions.empty() || given == &conditions.at(step)) return;
  const RunConditions::Steps* before = std::exchange(given, &conditions.at(step));
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

// The images of a batch from `first` on; it is filled up with images that are thrown away.
NoiseCall noise_keys(const ResolvedRequest& r, int64_t first) {
  NoiseCall keys{
      .seed = r.options.seed, .images = {}, .shape = r.sample.sizes(), .sigmas = r.call.sigmas};
  for (int64_t i = 0; i < r.batch; ++i)
    keys.images.push_back(r.first_image + std::min(first + i, r.count() - 1));
  return keys;
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

// Images [1,...] or one for each of the batch (fewer at its end), as a state.
State state_of(const Tensor& images, int64_t batch) {
  State out;
  if (!images.defined()) return out;
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t row = std::min(i, images.shape()[0] - 1);
    const auto v = images.rows(row, row + 1).span<float>();
    out.insert(out.end(), v.begin(), v.end());
  }
  return out;
}

// What a batch starts from.
struct Start {
  State data, noise;  // either may be empty
  NoiseFill step;     // the noise of its steps
};

// `mask` [1,h,w,1] for every number of a batch.
State mask_of(const Tensor& mask, const ResolvedRequest& r) {
  State out;
  for (int64_t i = 0; i < r.batch; ++i)
    for (const float v : mask.span<float>())
      out.insert(out.end(), static_cast<size_t>(r.sample[-1]), v);
  return out;
}

Start start_of(const ResolvedRequest& r, const RunInputs& in, const NoiseCall& keys) {
  const Noise noise = open_default_noise(r.noise, keys, r.noise_options);
  Start out{state_of(in.data, r.batch), {}, noise.step};
  // The first numbers are those of the posterior; all others move up.
  const int64_t before = in.first_draw + (in.deviation.defined() ? 1 : 0);
  if (before > 0)
    out.step = [step = noise.step, before](std::span<double> z, NoiseDraw draw) {
      draw.index += before;
      step(z, draw);
    };
  if (!in.noised) return out;
  out.noise.resize(static_cast<size_t>(keys.batch() * keys.elements()));
  noise.start(out.noise);
  if (in.deviation.defined()) {
    const State deviation = state_of(in.deviation, r.batch);
    for (size_t i = 0; i < out.data.size(); ++i) out.data[i] += deviation[i] * out.noise[i];
    noise.step(out.noise, {.index = 0});
  }
  if (in.noise_instead.defined()) {
    const State mask = mask_of(in.noise_instead, r);
    for (size_t i = 0; i < mask.size(); ++i)
      out.data[i] = (1 - mask[i]) * out.data[i] + mask[i] * out.noise[i];
  }
  return out;
}

// Of a batch that starts so.
Inpaint<double> inpaint_of(const ResolvedRequest& r, const KnownRegion& known, const Start& start) {
  State mask = mask_of(known.mask, r);
  if (known.where.rounds_mask) round_mask<double>(mask);
  return {.data = start.data,
          .noise = start.noise,
          .mask = std::move(mask),
          .space = r.call.space,
          .input = known.where.input,
          .output = known.where.output};
}

// The first images of a batch, f32 [n,h,w,c].
Tensor images_of(const State& x, const ResolvedRequest& r, int64_t first) {
  const int64_t images = std::min(r.batch, r.count() - first);
  Tensor out(DType::f32, {images, r.sample[0], r.sample[1], r.sample[2]});
  const auto to = out.span<float>();
  std::transform(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(to.size()), to.begin(),
                 [](double v) { return static_cast<float>(v); });
  return out;
}

// What stays the same during a run.
void set_run(Denoiser& d, const ResolvedRequest& r, const RunInputs& inputs, int64_t first) {
  set_classes(d, r, first);
  set_distilled(d, r);
  if (const auto weights = inputs.conditions.weights(); d.options().guided() || weights[0] != 1)
    d.weigh(weights);
  // Rules may remember a run: each has its own.
  if (r.rules.empty())
    d.guidance(r.guided ? r.options.guidance : 1);
  else
    d.guide(r.rules, {.sigmas = r.call.sigmas, .space = r.call.space});
}

State first_state(const ResolvedRequest& r, const RunInputs& inputs, const NoiseCall& keys,
                  const Start& start) {
  if (!inputs.noised) return start.data;
  State x(static_cast<size_t>(keys.batch() * keys.elements()));
  start_state<double>(start.data, start.noise, r.call.sigmas[0], r.start, x);
  return x;
}

State scaled(const ResolvedRequest& r, State x) {
  for (double& v : x) v *= r.result_scale;
  return x;
}

// `next_denoiser`: of a step, 1 and on; null: as before. Vectors are in host memory.
State run_switched(const std::function<Denoiser*(int64_t)>& next_denoiser, const ResolvedRequest& r,
                   const RunInputs& inputs, int64_t first,
                   const std::function<bool(const Progress&)>& progress, int64_t& evaluations) {
  const NoiseCall keys = noise_keys(r, first);
  const Start start = start_of(r, inputs, keys);
  int64_t step = 1;
  Denoiser* d = nullptr;
  const RunConditions::Steps* given = nullptr;
  const auto denoise = [&](std::span<const double> x, double sigma, std::span<double> denoised,
                           std::span<double> uncond) {
    if (Denoiser* const next = next_denoiser(inputs.first_step + step)) {
      d = next, given = nullptr;
      set_run(*d, r, inputs, first);
    }
    set_conditions(*d, inputs.conditions, inputs.first_step + step, given);
    ++evaluations;
    Latent in = d->put(x);
    const Denoised out = d->denoise(in, sigma, !uncond.empty());
    std::ranges::copy(d->values(out.guided), denoised.begin());
    if (!uncond.empty()) std::ranges::copy(d->values(out.uncond), uncond.begin());
  };
  HostLatents<double> vectors(static_cast<size_t>(keys.batch() * keys.elements()), denoise,
                              start.step);
  SampleCall call = r.call;
  call.progress = [&](const Progress& p) {
    if (inputs.watch)
      inputs.watch(
          {p.step, p.steps, [&] { return images_of(vectors.values(p.denoised), r, first); }});
    step = p.step + 1;
    return progress(p);
  };
  return scaled(r, vectors.values(sample(r.sampler, vectors,
                                         vectors.put(first_state(r, inputs, keys, start)), call)));
}

State run_batch(Denoiser& d, const ResolvedRequest& r, const RunInputs& inputs, int64_t first,
                const std::function<bool(const Progress&)>& progress) {
  const NoiseCall keys = noise_keys(r, first);
  set_run(d, r, inputs, first);
  const RunConditions::Steps* given = nullptr;
  set_conditions(d, inputs.conditions, inputs.first_step + 1, given);
  const Start start = start_of(r, inputs, keys);
  if (d.options().draws)
    d.draw_by(keys.seed, keys.images);
  else
    d.noise_from(start.step);
  SampleCall call = r.call;
  call.progress = [&](const Progress& p) {
    if (inputs.watch)
      inputs.watch({p.step, p.steps, [&] { return images_of(d.values(p.denoised), r, first); }});
    set_conditions(d, inputs.conditions, inputs.first_step + p.step + 1, given);
    return progress(p);
  };
  State x = first_state(r, inputs, keys, start);
  if (!inputs.known) return scaled(r, d.values(sample(r.sampler, d, d.put(x), call)));
  const Inpaint<double> how = inpaint_of(r, *inputs.known, start);
  if (r.rules.empty()) {
    if (d.restores())
      d.restore({.mask = how.mask, .data = how.data, .noise = how.noise, .space = how.space});
    x = d.values(sample(r.sampler, d, d.put(x), call));
  } else {  // which run on the host, on predictions that are not restored yet
    KnownLatents known(d, how);
    x = d.values(sample(r.sampler, known, d.put(x), call));
  }
  x = scaled(r, std::move(x));
  if (inputs.known->where.end) blend<double>(how.data, how.mask, x);
  return x;
}

// A denoiser for each set of conditions.
Pipeline::Sampled sample_switched(const std::function<Denoiser&(const RunInputs&)>& denoiser_for,
                                  const ResolvedRequest& r, int64_t first, const RunInputs& inputs,
                                  const std::function<bool(double)>& progress) {
  std::optional<std::vector<std::string>> names;
  const auto next_denoiser = [&](int64_t step) -> Denoiser* {
    const std::vector<std::string> wanted = names_of(inputs.conditions.at(step));
    if (names == wanted) return nullptr;
    RunInputs these = inputs;
    these.conditions = with_names(inputs.conditions, wanted);
    names = wanted;
    return &denoiser_for(these);
  };
  const auto steps = static_cast<double>(std::max<size_t>(r.call.sigmas.size() - 1, 1));
  Pipeline::Sampled out;
  const auto done = [&](const Progress& p) {
    out.steps = p.step;
    return !progress || progress(static_cast<double>(p.step) / steps);
  };
  const State x = run_switched(next_denoiser, r, inputs, first, done, out.evaluations);
  out.samples = images_of(x, r, first);
  return out;
}

}  // namespace

Pipeline::Pipeline(LoadedModel model, Context context, const PipelineOptions& options)
    : model_(std::move(model)),
      context_(std::move(context)),
      options_(options),
      decoder_(options_.decoder ? options_.decoder : decoder_of(*model_.model, model_.config)) {}

DType Pipeline::dtype_of(const ResolvedRequest& r) const {
  return r.dtype ? *r.dtype : usual_dtype(model_.weights.get(), *context_.device);
}

DenoiserOptions Pipeline::plan_options(const ResolvedRequest& r, const RunInputs& inputs) const {
  std::vector<nn::Condition> given = class_conditions(model_.config);
  std::ranges::copy(completed(inputs.conditions).conditions(conditions_of(model_)),
                    std::back_inserter(given));
  if (r.distilled)
    std::ranges::copy_if(model_.model->conditions(model_.config), std::back_inserter(given),
                         [](const nn::Condition& c) { return c.name == nn::guidance_scale; });
  const bool in_plan = inputs.known && r.rules.empty();
  return {.batch = r.batch,
          .image = r.sample,
          .conditions = std::move(given),
          .branches = inputs.conditions.evaluated(r.guided),
          .tiling = r.tiling,
          .together = inputs.together,
          .dtype = dtype_of(r),
          .vectors = r.counts.vectors + (inputs.known && !in_plan ? 2 : 1),
          .draws = r.draws_in_plan() && inputs.first_draw == 0,
          .restores_input = in_plan && inputs.known->where.input,
          .restores_output = in_plan && inputs.known->where.output,
          .integer_timesteps = r.integer_timesteps,
          .weights = model_.weights};
}

// ---- plans ---------------------------------------------------------------------------------

void Pipeline::drop_oldest() {
  plans_.pop_back();
  ++statistics_.dropped;
}

// Where the device has no room for `work`, the plans that were not used for longest make some, but
// for `kept` of them.
void Pipeline::with_room(size_t kept, const std::function<void()>& work) {
  for (;;) {
    try {
      return work();
    } catch (const OutOfMemory&) {
      if (plans_.size() <= kept) throw;
      drop_oldest();
      if (model_.weights) model_.weights->drop_unused();
    }
  }
}

std::unique_ptr<Denoiser> Pipeline::compiled(const DenoiserOptions& options) {
  std::unique_ptr<Denoiser> out;
  with_room(0, [&] {
    out = nullptr;  // one that there was no room for has memory already
    out = std::make_unique<Denoiser>(model_.diffusion, network_of(model_, options.conditions),
                                     options, context_);
  });
  return out;
}

std::list<Pipeline::CachedPlan>::iterator Pipeline::find(const DenoiserOptions& options) {
  return std::ranges::find_if(plans_, [&](const CachedPlan& p) {
    return p.component == model_.model->name && p.denoiser->options() == options;
  });
}

Denoiser& Pipeline::planned(const DenoiserOptions& options) {
  if (const auto known = find(options); known != plans_.end()) {
    ++statistics_.reused;
    plans_.splice(plans_.begin(), plans_, known);
  } else {
    plans_.push_front({model_.model->name, compiled(options)});
    ++statistics_.compiled;
    while (plans_.size() > std::max<size_t>(options_.plans, 1)) drop_oldest();
  }
  return *plans_.front().denoiser;
}

// One that has not run yet has no memory.
Denoiser& Pipeline::with_memory(const DenoiserOptions& options, bool hoisted_leaves) {
  Denoiser& d = planned(options);
  d.leave_hoisted(hoisted_leaves);
  if (!context_.device->on_host()) with_room(1, [&] { d.check_memory(); });
  return d;
}

// Where there is no room for all branches of guidance at a time, they are evaluated one by one.
Denoiser& Pipeline::denoiser_for(const ResolvedRequest& r, const RunInputs& inputs) {
  DenoiserOptions options = plan_options(r, inputs), apart = options;
  apart.together = false;
  if (find(options) == plans_.end() && find(apart) != plans_.end()) options = apart;
  if (!options.guided() || !options.together) return with_memory(options, inputs.hoisted_leaves);
  try {
    return with_memory(options, inputs.hoisted_leaves);
  } catch (const OutOfMemory&) {
    if (const auto known = find(options); known != plans_.end()) plans_.erase(known);
    return with_memory(apart, inputs.hoisted_leaves);
  }
}

Pipeline::Needs Pipeline::needs(const ResolvedRequest& r, const RunInputs& inputs) {
  const Denoiser& d = planned(plan_options(r, inputs));
  return {d.needs(), d.hoisted_needs()};
}

void Pipeline::drop(const ResolvedRequest& r, const RunInputs& inputs) {
  if (const auto known = find(plan_options(r, inputs)); known != plans_.end()) plans_.erase(known);
}

void Pipeline::release() {
  for (CachedPlan& p : plans_) p.denoiser->release();
  if (model_.weights) model_.weights->drop_unused();
}

// ---- runs ----------------------------------------------------------------------------------

GenerateOptions Pipeline::ran(const ResolvedRequest& r) const {
  GenerateOptions out = r.options;
  out.dtype = name_of(dtype_of(r));
  return out;
}

Pipeline::Sampled Pipeline::sample(const ResolvedRequest& r, int64_t first, const RunInputs& inputs,
                                   const std::function<bool(double)>& progress) {
  if (changes_names(inputs.conditions)) {
    if (r.rules.empty() && !inputs.known)
      return sample_switched(
          [&](const RunInputs& these) -> Denoiser& {
            Denoiser& d = denoiser_for(r, these);
            if (first == 0) check_memory(r, d, *context_.device);
            return d;
          },
          r, first, inputs, progress);
    RunInputs all = inputs;
    all.conditions = completed(inputs.conditions);
    return sample_by(denoiser_for(r, all), r, first, all, progress);
  }
  return sample_by(denoiser_for(r, inputs), r, first, inputs, progress);
}

Pipeline::Sampled Pipeline::sample_by(Denoiser& denoiser, const ResolvedRequest& r, int64_t first,
                                      const RunInputs& inputs,
                                      const std::function<bool(double)>& progress) {
  if (first == 0) check_memory(r, denoiser, *context_.device);
  const int64_t before = denoiser.evaluations();
  Shown shown(denoiser, r, progress);
  shown.begin();
  Sampled out;
  const State x = run_batch(denoiser, r, inputs, first, [&](const Progress& p) {
    out.steps = p.step;
    return shown.step(p.step, p.steps);
  });
  out.samples = images_of(x, r, first);
  out.evaluations = denoiser.evaluations() - before;
  return out;
}

Generated Pipeline::generate(const ResolvedRequest& r, const std::function<bool(double)>& progress,
                             const RunConditions& conditions) {
  const RunInputs inputs{.conditions = conditions};
  Denoiser& denoiser = denoiser_for(r, inputs);
  Generated out{.ran = ran(r),
                .start_noise = r.noise.source,
                .step_noise = r.noise.steps.empty() ? r.noise.source : r.noise.steps};
  Tensor samples(DType::f32, {r.count(), r.sample[0], r.sample[1], r.sample[2]});
  const auto count = static_cast<double>(r.count());
  for (int64_t at = 0; at < r.count(); at += r.batch) {
    const int64_t images = std::min(r.batch, r.count() - at);
    const Sampled batch = sample_by(denoiser, r, at, inputs, [&](double share) {
      const double done = static_cast<double>(at) + static_cast<double>(images) * share;
      return !progress || progress(done / count);
    });
    std::ranges::copy(batch.samples.span<float>(),
                      samples.rows(at, at + images).span<float>().begin());
    out.steps = batch.steps;
    out.evaluations += batch.evaluations;
  }
  out.evaluations /= (r.count() + r.batch - 1) / r.batch;
  if (!decoder_ || model_.model->latents(model_.config)) out.latents = samples;
  if (decoder_) out.images = decoder_->decode(std::move(samples));
  return out;
}

Generated generate(const LoadedModel& model, const GenerateRequest& request,
                   const GenerateOptions& options, const Context& context,
                   const std::function<bool(double)>& progress) {
  Pipeline pipeline(model, context);
  return pipeline.generate(pipeline.resolve(request, options), progress);
}

}  // namespace ebb
