#include "pipeline/request.h"

#include <algorithm>
#include <cmath>

#include "base/choices.h"
#include "base/error.h"
#include "diffusion/precond.h"
#include "diffusion/solver/dialect.h"
#include "diffusion/start/start_dialect.h"
#include "pipeline/resolved_run.h"

namespace ebb {
namespace {

constexpr int64_t largest_batch = 64;

// The command that asks: its name begins errors.
std::string_view command_of(const GenerateRequest& r) { return r.prompted ? "generate" : "sample"; }

// Throws Error for numbers that no request has.
void check_numbers(const LoadedModel& model, const GenerateRequest& request,
                   const GenerateOptions& o) {
  require(!request.classes.empty(), command_of(request), ": needs at least one image");
  require(o.steps >= 1 && o.steps <= 10000, command_of(request),
          ": --steps must be 1 to 10000 (got ", o.steps, ")");
  require(o.batch >= 0, command_of(request), ": --batch must not be negative (got ", o.batch, ")");
  check_choices(
      o, [&](std::string_view field) { return str(command_of(request), ": unknown ", field); });
  const int64_t classes = model.config.common().classes;
  for (const int64_t c : request.classes)
    require(c >= -1 && c<std::max<int64_t>(classes, 0), command_of(request), ": class ", c,
                         " does not exist (the model has ", classes, classes> 0
                ? ", from 0 on)"
                : ")");
}

// ---- guidance ------------------------------------------------------------------------------

bool without_class(const GenerateRequest& request) {
  return std::ranges::all_of(request.classes, [](int64_t c) { return c < 0; });
}

// "--guidance 2", for errors.
std::string guidance_text(const GenerateOptions& o) {
  return o.rules.empty() ? str("--guidance ", o.guidance) : str("--rules ", o.rules);
}

// Throws Error where guidance is needed but not there, or is there without effect.
void resolve_guidance(ResolvedRequest& r, const LoadedModel& model,
                      const GenerateRequest& request) {
  const GenerateOptions& o = r.options;
  require(std::isfinite(o.guidance), command_of(request), ": --guidance must be finite (",
          o.guidance, ")");
  require(o.rules.empty() || o.guidance == 1, command_of(request), ": give --guidance (",
          o.guidance, ") or --rules (", o.rules,
          "), not both: rules may hold cfg:scale=", o.guidance);
  r.rules = parse_rules(o.rules);
  if (r.rules.empty() && is_told_guidance(model)) r.distilled = o.guidance;
  r.guided = (o.guidance != 1 && !r.distilled) || has_guidance(r.rules);
  check_branches(r.rules, request.branches);
  const int64_t classes = model.config.common().classes;
  const bool guidable = classes > 0 || request.prompted;
  if (find_sampler(o.sampler).sampler->needs_uncond)
    require(r.guided && guidable, command_of(request), ": ", o.sampler,
            " needs --guidance other than 1, or --rules that guide, and a model with classes (",
            guidance_text(o), ", ", classes, " classes)");
  require(!r.guided || guidable, command_of(request), ": guidance needs a model with classes (",
          guidance_text(o), ", ", classes, " classes)");
  require(!r.guided || request.prompted || !without_class(request), command_of(request), ": ",
          o.rules.empty() ? "--guidance" : "--rules", " has no effect without a class (",
          guidance_text(o), ", --class none)");
  if (classes > 0 && model.of_run && model.diffusion.label_dropout == 0 &&
      (r.guided || without_class(request)))
    r.warnings.push_back(
        str(r.guided ? "guidance" : "class none",
            ": the model was trained without label dropout (label_dropout 0), so what it "
            "says without a class means nothing; training with --label-dropout 0.1 "
            "mends that"));
}

// ---- levels, sampler, noise ----------------------------------------------------------------

void resolve_levels(ResolvedRequest& r, const LoadedModel& model, const GenerateRequest& request) {
  GenerateOptions& o = r.options;
  require(!request.strength || (*request.strength >= 0 && *request.strength <= 1),
          command_of(request), ": --strength must lie in [0, 1] (got ",
          request.strength.value_or(0), ")");
  ResolvedRun run = resolve_run({.command = std::string(command_of(request)),
                                 .sampler = o.sampler,
                                 .schedule = o.schedule,
                                 .options = o.options,
                                 .schedule_options = o.schedule_options,
                                 .dialect = o.dialect,
                                 .steps = o.steps,
                                 .steps_given = o.steps_given,
                                 .usual = default_schedule(model.diffusion),
                                 .strength = request.strength,
                                 .exact_steps = request.exact_steps},
                                Precond(model.diffusion).levels());
  o.schedule = run.schedule;
  if (run.own_steps) o.steps = static_cast<int64_t>(run.call.sigmas.size()) - 1;
  r.start = {
      .space = run.call.space, .full_variance = run.full_variance, .noised_at = run.noised_at};
  r.sampler = std::move(run.sampler);
  r.call = std::move(run.call);
  r.noise_levels = std::move(run.noise_levels);
  r.timesteps_apart = run.timesteps_apart;
  if (r.call.space == Space::ve && !r.call.sigmas.empty())
    r.result_scale = result_scale(o.dialect, o.sampler, r.call.sigmas.back());
}

void resolve_noise(ResolvedRequest& r) {
  GenerateOptions& o = r.options;
  r.noise = o.noise == "auto" ? default_noise(o.dialect, o.sampler)
                              : DefaultNoise{.source = find_source(o.noise).name};
  if (r.noise.steps.empty()) o.noise = r.noise.source;
  r.noise_options = parse_options(o.noise_options, "noise " + r.noise.source);
  // of a picture of one number: for the options
  open_default_noise(r.noise, {.shape = {1, 1, 1}, .sigmas = r.call.sigmas}, r.noise_options);
}

}  // namespace

bool is_told_guidance(const LoadedModel& model) {
  return std::ranges::any_of(model.model->conditions(model.config),
                             [](const nn::Condition& c) { return c.name == nn::guidance_scale; });
}

bool ResolvedRequest::draws_in_plan() const {
  return keys.empty() && noise.source == "ebb" && noise.steps.empty() && counts.draws > 0;
}

ResolvedRequest resolve(const LoadedModel& model, const GenerateRequest& request,
                        const GenerateOptions& options) {
  check_numbers(model, request, options);
  ResolvedRequest r{
      .options = options, .classes = request.classes, .first_image = request.first_image};
  r.options.dialect = find_dialect(options.dialect).name;
  r.tiling = request.tiling;
  r.sample = sample_shape(*model.model, model.config, request.size);
  require(!options.batch_invariant || options.batch <= 1,
          "sample: --batch-invariant evaluates images alone, --batch ", options.batch, " together");
  const int64_t usual = options.batch_invariant ? 1 : largest_batch;
  r.batch = std::min(options.batch > 0 ? options.batch : usual, r.count());
  r.options.batch = r.batch;
  if (options.dtype != "auto") r.dtype = parse_dtype(options.dtype);
  resolve_guidance(r, model, request);
  resolve_levels(r, model, request);
  resolve_noise(r);
  r.counts = count(r.sampler, r.call);
  const std::vector<double>& sigmas = r.call.sigmas;
  require(r.rules.empty() ||
              has_effect(r.rules, {.sigmas = sigmas, .space = r.call.space}, r.counts.highest),
          command_of(request), ": --rules has no effect at any noise level of this run (",
          sigmas.front(), " to ", sigmas.back(), ", --rules ", options.rules, ")");
  return r;
}

ResolvedRequest on_levels(ResolvedRequest r, std::vector<double> sigmas) {
  r.call.sigmas = std::move(sigmas);
  r.counts = count(r.sampler, r.call);
  return r;
}

}  // namespace ebb
