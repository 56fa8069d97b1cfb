#include "pipeline/pipeline.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "core/host_memory.h"
#include "core/out_of_memory.h"
#include "pipeline/batch_run.h"
#include "pipeline/condition_sets.h"
#include "pipeline/control.h"
#include "pipeline/on_devices.h"
#include "pipeline/run_dtype.h"
#include "pipeline/step_progress.h"
#include "pipeline/steps_ahead.h"

namespace ebb {
namespace {

// Throws OutOfMemory if states and pictures of a request, with the plan's vectors and arena where
// these are the host's, do not fit.
void check_memory(const ResolvedRequest& r, const Denoiser& d, const Device& device) {
  const int64_t numbers = r.batch * r.sample.numel();
  constexpr int64_t of_states = 2 * sizeof(double) + sizeof(float);
  constexpr int64_t of_pictures = sizeof(float) + 2;  // and bytes, twice: as a grid
  int64_t bytes = numbers * of_states + r.sample.numel() * r.count() * of_pictures;
  if (device.on_host())
    bytes +=
        d.missing_bytes() + d.options().vectors * numbers * static_cast<int64_t>(sizeof(float));
  const int64_t free = device.on_host() ? device.free_memory() : free_host_memory();
  if (bytes <= free) return;
  throw OutOfMemory(str("sample: out of memory: ", r.batch, " at a time of --n ", r.count(),
                        " need ", bytes / 1000000, " MB, and ", free / 1000000,
                        " MB are free; a smaller --batch or --n needs less"));
}

// Before a plan is compiled.
void poll(const std::function<bool(double)>& progress) {
  if (progress && !progress(0)) throw Cancelled("sample: stopped before a step");
}

Pipeline::Sampled sample_switching(const NextEvaluator& next, const ResolvedRequest& r,
                                   int64_t first, const RunInputs& inputs,
                                   const std::function<bool(double)>& progress) {
  const auto steps = static_cast<double>(std::max<size_t>(r.call.sigmas.size() - 1, 1));
  Pipeline::Sampled out;
  const auto done = [&](const Progress& p) {
    out.steps = p.step;
    return !progress || progress(static_cast<double>(p.step) / steps);
  };
  const State x = run_switching(next, r, inputs, first, done, out.evaluations);
  out.samples = images_of(x, r, first);
  return out;
}

// What the denoisers of a run get, which take turns where conditions come and go. Rules remember a
// run, and known regions lie in a denoiser: then there is one, with 0 for what a step lacks.
std::vector<RunInputs> parts_of(const ResolvedRequest& r, const RunInputs& inputs) {
  if (!changes_names(inputs.conditions)) return {inputs};
  RunInputs part = inputs;
  std::vector<RunInputs> out;
  if (!r.rules.empty() || inputs.known) {
    part.conditions = completed(inputs.conditions);
    return {part};
  }
  for (RunConditions& c : ebb::parts_of(inputs.conditions)) {
    part.conditions = std::move(c);
    out.push_back(part);
  }
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

// Of a part of a run.
DenoiserOptions Pipeline::plan_options(const ResolvedRequest& r, const RunInputs& inputs) const {
  std::vector<nn::Condition> given = class_conditions(model_.config);
  std::ranges::copy(inputs.conditions.conditions(conditions_of(model_)), std::back_inserter(given));
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
          .clean_input = in_plan && inputs.known->where.clean_input,
          .timesteps_apart = r.timesteps_apart,
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
      if (model_.weights) model_.weights->drop_unused(*context_.device);
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
    with_room(1, [&] { plans_.front().denoiser->refresh(); });
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

void Pipeline::prepare(const ResolvedRequest& r, const RunInputs& inputs) {
  for (const RunInputs& part : parts_of(r, inputs)) denoiser_for(r, part);
}

std::vector<Pipeline::Needs> Pipeline::needs(const ResolvedRequest& r, const RunInputs& inputs) {
  std::vector<Needs> out;
  for (const RunInputs& part : parts_of(r, inputs)) {
    const Denoiser& d = planned(plan_options(r, part));
    out.push_back({d.needs(), d.hoisted_needs(), part.conditions.steps.size() > 1});
  }
  return out;
}

std::vector<DenoiserOptions> Pipeline::plans_of(const ResolvedRequest& r,
                                                const RunInputs& inputs) const {
  std::vector<DenoiserOptions> out;
  for (const RunInputs& part : parts_of(r, inputs)) out.push_back(plan_options(r, part));
  return out;
}

void Pipeline::drop(const ResolvedRequest& r, const RunInputs& inputs) {
  for (const DenoiserOptions& plan : plans_of(r, inputs))
    if (const auto known = find(plan); known != plans_.end()) plans_.erase(known);
}

void Pipeline::release() {
  for (CachedPlan& p : plans_) p.denoiser->release();
  if (model_.weights) model_.weights->drop_unused(*context_.device);
}

// ---- runs ----------------------------------------------------------------------------------

GenerateOptions Pipeline::ran(const ResolvedRequest& r) const {
  GenerateOptions out = r.options;
  out.dtype = name_of(dtype_of(r));
  return out;
}

Denoiser& Pipeline::checked(const ResolvedRequest& r, const RunInputs& inputs, int64_t first) {
  Denoiser& d = denoiser_for(r, inputs);
  if (first == 0) check_memory(r, d, *context_.device);
  return d;
}

// The denoisers of the parts of a run. One whose part is over gives back what its runs take; its
// weights stay unless one component is on the device at a time.
class Pipeline::PartEvaluators {
 public:
  PartEvaluators(Pipeline& of, const ResolvedRequest& r, const RunInputs& inputs, int64_t first)
      : of_(of),
        r_(r),
        conditions_(inputs.conditions),
        parts_(parts_of(r, inputs)),
        first_(first) {}

  // As a NextEvaluator.
  std::optional<Evaluator> next(const RunClock& now) {
    const RunInputs* part = &parts_[0];
    if (parts_.size() > 1) {
      const auto names = names_of(now.of(conditions_));
      part = &*std::ranges::find_if(
          parts_, [&](const RunInputs& p) { return names_of(p.conditions.steps[0]) == names; });
    }
    if (part == now_) return {};
    leave();
    now_ = part;
    denoiser_ = &of_.checked(r_, *part, first_);
    return Evaluator{denoiser_, &r_, part};
  }
  // When the run is over.
  void leave() {
    if (denoiser_ && parts_.size() > 1) {
      denoiser_->release();
      if (parts_[0].hoisted_leaves && of_.model_.weights)
        of_.model_.weights->drop_unused(*of_.context_.device);
    }
    denoiser_ = nullptr;
  }

 private:
  Pipeline& of_;
  const ResolvedRequest& r_;
  const RunConditions& conditions_;
  std::vector<RunInputs> parts_;
  int64_t first_;
  const RunInputs* now_ = nullptr;
  Denoiser* denoiser_ = nullptr;
};

Pipeline::Sampled Pipeline::sample(const ResolvedRequest& r, int64_t first, const RunInputs& inputs,
                                   const std::function<bool(double)>& progress) {
  poll(progress);
  const std::vector<RunInputs> parts = parts_of(r, inputs);
  if (parts.size() == 1) return sample_by(denoiser_for(r, parts[0]), r, first, parts[0], progress);
  PartEvaluators by(*this, r, inputs, first);
  Sampled out = sample_switching([&](const RunClock& now, double) { return by.next(now); }, r,
                                 first, inputs, progress);
  by.leave();
  return out;
}

Pipeline::Sampled Pipeline::sample_handed_over(const ResolvedRequest& r, int64_t first,
                                               const RunInputs& inputs, const Successor& next,
                                               const std::function<bool(double)>& progress) {
  poll(progress);
  PartEvaluators before(*this, r, inputs, first),
      after(next.pipeline, next.request, next.inputs, first);
  bool begun = false, handed_over = false;
  const auto either = [&](const RunClock& now, double sigma) {
    if (!handed_over && next.at(sigma)) {
      handed_over = true;
      before.leave();
      if (begun && inputs.hoisted_leaves) release();
    }
    begun = true;
    return handed_over ? after.next(now) : before.next(now);
  };
  Sampled out = sample_switching(either, next.whole, first, inputs, progress);
  before.leave(), after.leave();
  return out;
}

Pipeline::Sampled Pipeline::sample_by(Denoiser& denoiser, const ResolvedRequest& r, int64_t first,
                                      const RunInputs& inputs,
                                      const std::function<bool(double)>& progress) {
  if (first == 0) check_memory(r, denoiser, *context_.device);
  const int64_t before = denoiser.evaluations();
  Shown shown(denoiser, r, progress);
  shown.begin();
  StepsAhead ahead(*context_.device);
  Sampled out;
  const State x = run_batch(denoiser, r, inputs, first, [&](const Progress& p) {
    out.steps = p.step;
    return shown.step(ahead.step(p.step), p.steps);
  });
  shown.end();
  out.samples = images_of(x, r, first);
  out.evaluations = denoiser.evaluations() - before;
  return out;
}

namespace {

// What all devices have done of a request.
class SharedProgress {
 public:
  SharedProgress(int64_t images, size_t devices, const std::function<bool(double)>& tells)
      : images_(static_cast<double>(images)), done_(devices), tells_(tells) {}

  // A device has made so many images. False: it must stop.
  bool show(size_t device, double images, const std::stop_token& stop) {
    const std::lock_guard lock(mutex_);
    done_[device] = images;
    if (stop.stop_requested()) return false;
    return !tells_ || tells_(std::accumulate(done_.begin(), done_.end(), 0.0) / images_);
  }

 private:
  std::mutex mutex_;
  double images_;
  std::vector<double> done_;
  const std::function<bool(double)>& tells_;
};

}  // namespace

Generated Pipeline::generate(const ResolvedRequest& r, const std::function<bool(double)>& progress,
                             const RunConditions& conditions) {
  Pipeline* const alone[] = {this};
  return generate_on(alone, r, progress, conditions);
}

void Pipeline::sample_next(ImageQueue& queue, const ResolvedRequest& r, const RunInputs& inputs,
                           const Sampling& to) {
  ImageRange now = queue.next(to.device, r.batch);
  if (now.empty()) return;  // nothing is compiled in vain
  Denoiser& denoiser = denoiser_for(r, inputs);
  double made = 0;
  for (; !now.empty(); now = queue.next(to.device, r.batch)) {
    const auto images = static_cast<double>(now.end - now.first);
    const Sampled batch = sample_by(denoiser, r, now.first, inputs, [&](double share) {
      return to.progress(made + images * share);
    });
    std::ranges::copy(batch.samples.span<float>(),
                      to.samples.rows(now.first, now.end).span<float>().begin());
    made += images;
    to.evaluations += batch.evaluations;
    if (now.first == 0) to.steps = batch.steps;
  }
}

Generated Pipeline::generate_on(std::span<Pipeline* const> pipelines, const ResolvedRequest& asked,
                                const std::function<bool(double)>& progress,
                                const RunConditions& conditions) {
  const RunInputs inputs{.conditions = completed(conditions)};
  const Pipeline& first = *pipelines[0];
  ResolvedRequest r = asked;
  r.dtype = first.dtype_of(asked);  // one for devices of all kinds
  Generated out{.ran = first.ran(r),
                .start_noise = r.noise.source,
                .step_noise = r.noise.steps.empty() ? r.noise.source : r.noise.steps};
  Tensor samples(DType::f32, {r.count(), r.sample[0], r.sample[1], r.sample[2]});
  std::vector<Context> devices;
  for (const Pipeline* p : pipelines) devices.push_back(p->context_);
  ImageQueue queue(r.count(), r.batch, devices.size());
  SharedProgress shared(r.count(), devices.size(), progress);
  std::atomic<int64_t> evaluations = 0;
  on_devices(devices, [&](size_t d, const std::stop_token& stop) {
    pipelines[d]->sample_next(queue, r, inputs,
                              {d, samples, out.steps, evaluations,
                               [&, d](double images) { return shared.show(d, images, stop); }});
  });
  out.evaluations = evaluations / ((r.count() + r.batch - 1) / r.batch);
  const LoadedModel& m = first.model_;
  if (!first.decoder_ || m.model->latents(m.config)) out.latents = samples;
  if (first.decoder_) out.images = first.decoder_->decode(std::move(samples));
  return out;
}

Generated generate(const LoadedModel& model, const GenerateRequest& request,
                   const GenerateOptions& options, const Context& context,
                   const std::function<bool(double)>& progress) {
  Pipeline pipeline(model, context);
  return pipeline.generate(pipeline.resolve(request, options), progress);
}

}  // namespace ebb
