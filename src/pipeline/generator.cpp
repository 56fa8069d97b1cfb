#include "pipeline/generator.h"

#include <algorithm>
#include <cmath>

#include "base/choices.h"
#include "base/error.h"
#include "base/json.h"
#include "core/host_memory.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/noise/noise.h"
#include "diffusion/solver/defaults.h"
#include "diffusion/solver/sampler.h"
#include "diffusion/start/levels_of_run.h"
#include "diffusion/start/strength.h"
#include "io/safetensors.h"
#include "train/checkpoint.h"

namespace ebb {
namespace {

constexpr int64_t largest_batch = 64;

LoadedModel recognised(const std::string& file, const std::string& name) {
  if (!name.empty()) {
    const NamedModel m = find_model(name);
    return {m.model, m.config, usual_diffusion(*m.model, m.config), {}, {}};
  }
  nn::FileShapes shapes;
  const auto tensors = io::SafetensorsFile::open(file);
  for (const auto& e : tensors.entries()) shapes.emplace(e.name, e.shape);
  try {
    const RecognisedModel r = recognise_model(shapes);
    return {.model = r.model,
            .config = r.config,
            .diffusion = usual_diffusion(*r.model, r.config),
            .guessed = r.model->guessed(r.config)};
  } catch (const Error& e) {
    fail(e.what(), " (--model names it)  ", file);
  }
}

LoadedModel from_run(const train::ModelFileInfo& info, const std::string& file) {
  const NamedModel m = find_model(info.run.model);
  LoadedModel out{m.model, m.config, {}, info.run.class_names, {}, info.step, true};
  const auto part = [&](const char* name) { return str("checkpoint: '", name, "' in ", file); };
  set_fields_json(out.config.fields(), info.run.model_config, part("ebb.model_config"));
  set_fields_json(fields_of(out.diffusion), info.run.diffusion_config,
                  part("ebb.diffusion_config"));
  check(*m.model, out.config);
  check(out.diffusion);
  const auto names = static_cast<int64_t>(out.class_names.size());
  require(names == 0 || names == out.config.common().classes,
          "checkpoint: must name all classes of its network or none (", names, " names, ",
          out.config.common().classes, " classes)");
  return out;
}

struct Asked {
  const std::string& path;
  const std::string file;  // that `path` means
  const std::string& model;
};

LoadedModel without_weights(const std::string& file, const std::string& model) {
  const auto info = model.empty() ? train::read_model_info(file) : std::nullopt;
  return info ? from_run(*info, file) : recognised(file, model);
}

NamedTensors weights_in(const std::string& file, const LoadedModel& m) {
  Graph g;
  network_of(*m.model, m.config)(g, network_inputs(g, *m.model, m.config, 1));
  return train::load_model_weights(file, nn::weights_of(g));
}

// What f() gives; an Error of it says which file is wrong and, in a folder, which older one can be
// loaded.
auto in_file(const Asked& a, const auto& f) {
  try {
    return f();
  } catch (const Error& e) {
    const std::string what = e.what();
    const std::string older = train::older_model(a.path, a.file, [&](const std::string& file) {
      weights_in(file, without_weights(file, a.model));
    });
    fail(what, what.find(a.file) == std::string::npos ? "  " + a.file : "",
         older.empty() ? "" : "; an older model is whole: " + older);
  }
}

// What is known of a run before there is a device.
struct ResolvedRun {
  GenerateOptions ran;
  SampleCall call;
  SampleCounts counts;
  StartOptions start;
  DefaultNoise source;
  std::vector<RuleCall> rules;
};

// `known`: to the network.
void choose_levels(ResolvedRun& run, const LoadedModel& model, const Discretisation& known) {
  const GenerateOptions& o = run.ran;
  const LevelsOfRun levels{.sampler = o.sampler,
                           .schedule = o.schedule,
                           .steps = o.steps,
                           .options = parse_options(o.schedule_options, o.schedule),
                           .dialect = o.dialect,
                           .usual = default_schedule(model.diffusion)};
  run.call = {.sigmas = levels_with_steps(levels, known),
              .options = parse_options(o.options, "sample: --options"),
              .dialect = o.dialect};
  fit_to_network(run.call, known);
  run.start = {.space = run.call.space,
               .full_variance = starts_from_noise({.dialect = o.dialect,
                                                   .sigma = run.call.sigmas[0],
                                                   .sigma_max = known.sigma_max,
                                                   .sampler = o.sampler,
                                                   .leading = spaced_leading(levels, known)})};
  run.ran.schedule = schedule_of_run(levels, known);
  if (find_schedule(run.ran.schedule, find_dialect(o.dialect)).schedule->own_count)
    run.ran.steps = static_cast<int64_t>(run.call.sigmas.size()) - 1;
}

OptionTexts noise_options(const ResolvedRun& run) {
  return parse_options(run.ran.noise_options, "noise " + run.source.source);
}

// Throws Error for what there is not, what does not go together, and what has no effect.
ResolvedRun resolved_run(const LoadedModel& model, const GenerateOptions& options) {
  ResolvedRun run{.ran = options};
  choose_levels(run, model, Precond(model.diffusion).levels());
  const std::vector<double>& sigmas = run.call.sigmas;
  run.source = options.noise == "auto" ? default_noise(options.dialect, options.sampler)
                                       : DefaultNoise{.source = find_source(options.noise).name};
  if (run.source.steps.empty()) run.ran.noise = run.source.source;
  // of a picture of one number: for the options
  open_default_noise(run.source, {.shape = {1, 1, 1}, .sigmas = sigmas}, noise_options(run));
  run.rules = parse_rules(options.rules);
  run.counts = ebb::count(options.sampler, run.call);
  require(run.rules.empty() || has_effect(run.rules, {.sigmas = sigmas, .space = run.call.space},
                                          run.counts.highest),
          "sample: --rules has no effect at any noise level of this run (", sigmas.front(), " to ",
          sigmas.back(), ", --rules ", options.rules, ")");
  return run;
}

// One denoiser at one batch size, used batch after batch.
class Batches {
 public:
  Batches(const LoadedModel& model, const GenerateRequest& request, const GenerateOptions& options,
          const Context& context)
      : request_(request),
        options_(options),
        run_(resolved_run(model, options)),
        common_(model.config.common()) {
    const auto count = static_cast<int64_t>(request.classes.size());
    batch_ = std::min(options.batch > 0 ? options.batch : largest_batch, count);
    const bool fast = context.device->fast_in(DType::bf16);
    const DType dtype = options.dtype != "auto" ? parse_dtype(options.dtype)
                        : fast                  ? DType::bf16
                                                : DType::f32;
    run_.ran.dtype = name_of(dtype);
    run_.ran.batch = batch_;
    const bool guided = options.guidance != 1 || has_guidance(run_.rules);
    denoiser_ = std::make_unique<Denoiser>(
        model.diffusion, network_of(*model.model, model.config),
        DenoiserOptions{.batch = batch_,
                        .image = {common_.image_size, common_.image_size, common_.in_channels},
                        .conditions = class_conditions(model.config),
                        .guided = guided,
                        .dtype = dtype,
                        .vectors = run_.counts.vectors + 1,
                        .draws = run_.source.source == "ebb" && run_.source.steps.empty() &&
                                 run_.counts.draws > 0,
                        .integer_timesteps = find_dialect(options.dialect).integer_timesteps},
        context);
    for (const auto& [name, tensor] : model.weights) denoiser_->bind(name, tensor);
    check_memory(*context.device);
    if (options.guidance != 1) denoiser_->guidance(options.guidance);
  }

  Generated run(const std::function<bool(double)>& progress) {
    const auto count = static_cast<int64_t>(request_.classes.size());
    Generated out{.images = Tensor(DType::f32, {count, common_.image_size, common_.image_size,
                                                common_.in_channels}),
                  .ran = run_.ran,
                  .start_noise = run_.source.source,
                  .step_noise = run_.source.steps.empty() ? run_.source.source : run_.source.steps};
    Shown shown(*this, progress);
    for (int64_t at = 0; at < count; at += batch_) {
      shown.begin(at, std::min(batch_, count - at));
      const State x = run_batch(at, [&](const Progress& p) {
        out.steps = p.step;
        return shown.step(p.step, p.steps);
      });
      const auto to = out.images.rows(at, std::min(at + batch_, count)).span<float>();
      for (size_t i = 0; i < to.size(); ++i)
        to[i] = static_cast<float>(std::clamp(x[i], -1.0, 1.0));
    }
    const int64_t batches = (count + batch_ - 1) / batch_;
    out.evaluations = denoiser_->evaluations() / batches;
    return out;
  }

 private:
  // The progress of a run: from step to step, and within one by its evaluations.
  class Shown {
   public:
    Shown(Batches& of, const std::function<bool(double)>& progress) : of_(of), progress_(progress) {
      if (progress)
        of.denoiser_->watch([this](double share) {
          if (!within(share)) throw Cancelled("sample: stopped within a step");
        });
    }
    ~Shown() { of_.denoiser_->watch({}); }
    Shown(const Shown&) = delete;
    Shown& operator=(const Shown&) = delete;

    // Throws Cancelled.
    void begin(int64_t first, int64_t images) {
      first_ = static_cast<double>(first), images_ = static_cast<double>(images);
      if (!step(0, static_cast<int64_t>(of_.run_.call.sigmas.size()) - 1))
        throw Cancelled("sample: stopped before a step");
    }
    bool step(int64_t step, int64_t steps) {
      step_ = static_cast<double>(step), steps_ = static_cast<double>(std::max<int64_t>(steps, 1));
      evaluations_ = of_.denoiser_->evaluations();
      return tell(step_);
    }

   private:
    bool within(double share) {
      const double each = std::max(1.0, static_cast<double>(of_.run_.counts.evaluations) / steps_);
      const auto before = static_cast<double>(of_.denoiser_->evaluations() - evaluations_);
      return tell(std::min(step_ + std::min((before + share) / each, 1.0), steps_));
    }
    bool tell(double steps) const {
      const auto count = static_cast<double>(of_.request_.classes.size());
      return !progress_ || progress_((first_ + images_ * steps / steps_) / count);
    }
    Batches& of_;
    const std::function<bool(double)>& progress_;
    double first_ = 0, images_ = 0, step_ = 0, steps_ = 1;  // of this batch
    int64_t evaluations_ = 0;                               // when the step began
  };

  // Throws Error if states and pictures, with the plan's vectors and arena where these are the
  // host's, do not fit.
  void check_memory(const Device& device) const {
    const int64_t numbers = batch_ * common_.image_size * common_.image_size * common_.in_channels;
    const auto count = static_cast<int64_t>(request_.classes.size());
    constexpr int64_t of_states = 2 * sizeof(double) + sizeof(float);
    constexpr int64_t of_pictures = sizeof(float) + 2;  // and bytes, twice: as a grid
    int64_t bytes = numbers * of_states + numbers / batch_ * count * of_pictures;
    if (device.on_host())
      bytes += denoiser_->plan().arena_bytes() +
               denoiser_->options().vectors * numbers * static_cast<int64_t>(sizeof(float));
    else
      denoiser_->plan().check_memory();
    const int64_t free = free_host_memory();
    require(bytes <= free, "sample: out of memory: ", batch_, " at a time of --n ", count, " need ",
            bytes / 1000000, " MB, and ", free / 1000000,
            " MB are free; a smaller --batch or --n needs less");
  }
  // The last batch is filled up with images that are thrown away.
  State run_batch(int64_t first, const std::function<bool(const Progress&)>& progress) {
    const auto count = static_cast<int64_t>(request_.classes.size());
    std::vector<int64_t> classes;
    NoiseCall keys{.seed = options_.seed,
                   .images = {},
                   .shape = {common_.image_size, common_.image_size, common_.in_channels},
                   .sigmas = run_.call.sigmas};
    for (int64_t i = 0; i < batch_; ++i) {
      const int64_t index = std::min(first + i, count - 1);
      classes.push_back(request_.classes[static_cast<size_t>(index)]);
      keys.images.push_back(request_.first_image + index);
    }
    if (common_.classes > 0) denoiser_->condition(nn::class_id, tensor_of(classes, {batch_}));
    const Noise noise = open_default_noise(run_.source, keys, noise_options(run_));
    if (denoiser_->options().draws)
      denoiser_->draw_by(keys.seed, keys.images);
    else
      denoiser_->noise_from(noise.step);
    // Rules may remember a run: each has its own.
    if (!run_.rules.empty())
      denoiser_->guide(run_.rules, {.sigmas = run_.call.sigmas, .space = run_.call.space});
    SampleCall call = run_.call;
    call.progress = progress;
    State start(static_cast<size_t>(keys.batch() * keys.elements()));
    noise.start(start);
    start_state<double>({}, start, call.sigmas[0], run_.start, start);
    return denoiser_->values(sample(options_.sampler, *denoiser_, denoiser_->put(start), call));
  }

  const GenerateRequest& request_;
  const GenerateOptions& options_;
  ResolvedRun run_;
  CommonConfig common_;
  int64_t batch_ = 1;
  std::unique_ptr<Denoiser> denoiser_;
};

bool without_class(const GenerateRequest& request) {
  return std::ranges::all_of(request.classes, [](int64_t c) { return c < 0; });
}

bool is_guided(const GenerateOptions& o) {
  return o.guidance != 1 || has_guidance(parse_rules(o.rules));
}

// "--guidance 2", for errors.
std::string guidance_text(const GenerateOptions& o) {
  return o.rules.empty() ? str("--guidance ", o.guidance) : str("--rules ", o.rules);
}

// Throws Error where guidance is needed but not there, or is there without effect.
void check_guidance(const LoadedModel& model, const GenerateRequest& request,
                    const GenerateOptions& o) {
  require(std::isfinite(o.guidance), "sample: guidance must be finite (", o.guidance, ")");
  require(o.rules.empty() || o.guidance == 1, "sample: give --guidance (", o.guidance,
          ") or --rules (", o.rules, "), not both: rules may hold cfg:scale=", o.guidance);
  const bool guided = is_guided(o);
  check_branches(parse_rules(o.rules));
  const int64_t classes = model.config.common().classes;
  if (find_sampler(o.sampler).sampler->needs_uncond)
    require(guided && classes > 0, "sample: ", o.sampler,
            " needs --guidance other than 1, or --rules that guide, and a model with classes (",
            guidance_text(o), ", ", classes, " classes)");
  require(!guided || classes > 0, "sample: guidance needs a model with classes (", guidance_text(o),
          ", ", classes, " classes)");
  require(!guided || !without_class(request),
          "sample: ", o.rules.empty() ? "--guidance" : "--rules",
          " has no effect without a class (", guidance_text(o), ", --class none)");
}

}  // namespace

DiffusionConfig usual_diffusion(const Model& model, const ModelConfig& config) {
  DiffusionConfig d;
  parse_fields(fields_of(d), model.diffusion(config));
  return d;
}

LoadedModel load_model(const std::string& path, const std::string& model,
                       const std::vector<std::pair<std::string, std::string>>& overrides) {
  const Asked asked{path, train::find_model_file(path), model};
  LoadedModel m = in_file(asked, [&] { return without_weights(asked.file, model); });
  for (const auto& [name, text] : overrides) {
    const std::vector<Field> fields = fields_of(m.diffusion);
    set_field(find_field(fields, name, "diffusion"), text);
  }
  resolve(m.diffusion);
  for (const auto& [name, text] : overrides) check_applies(name, m.diffusion.precond);
  check(m.diffusion);
  m.weights = in_file(asked, [&] { return weights_in(asked.file, m); });
  return m;
}

std::vector<std::string> warnings(const LoadedModel& model, const GenerateRequest& request,
                                  const GenerateOptions& o) {
  std::vector<std::string> out;
  const bool guided = is_guided(o), none = without_class(request);
  const bool classes = model.config.common().classes > 0;
  if (classes && model.of_run && model.diffusion.label_dropout == 0 && (guided || none))
    out.push_back(str(guided ? "guidance" : "class none",
                      ": the model was trained without label dropout (label_dropout 0), so what it "
                      "says without a class means nothing; training with --label-dropout 0.1 "
                      "mends that"));
  return out;
}

void check(const LoadedModel& model, const GenerateRequest& request,
           const GenerateOptions& options) {
  require(!request.classes.empty(), "sample: needs at least one image");
  require(options.steps >= 1 && options.steps <= 10000, "sample: steps must be 1 to 10000 (got ",
          options.steps, ")");
  require(options.batch >= 0, "sample: batch must not be negative (got ", options.batch, ")");
  check_choices(options, [](std::string_view field) { return str("sample: unknown ", field); });
  const int64_t classes = model.config.common().classes;
  for (const int64_t c : request.classes)
    require(c >= -1 && c < std::max<int64_t>(classes, 0), "sample: class ", c,
            " does not exist (the model has ", classes, ")");
  check_guidance(model, request, options);
  resolved_run(model, options);
}

Generated generate(const LoadedModel& model, const GenerateRequest& request,
                   const GenerateOptions& options, const Context& context,
                   const std::function<bool(double)>& progress) {
  check(model, request, options);
  return Batches(model, request, options, context).run(progress);
}

Tensor to_pixels(const Tensor& images) {
  Tensor out(DType::u8, images.shape());
  const auto from = images.span<float>();
  const auto to = out.span<uint8_t>();
  for (size_t i = 0; i < from.size(); ++i)
    to[i] = static_cast<uint8_t>(std::lround(std::clamp((from[i] + 1) * 127.5f, 0.0f, 255.0f)));
  return out;
}

Tensor image_at(const Tensor& images, int64_t index) {
  const Shape& s = images.shape();
  return images.rows(index, index + 1).reshape({s[1], s[2], s[3]});
}

}  // namespace ebb
