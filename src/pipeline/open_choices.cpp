#include "pipeline/open_choices.h"

#include <algorithm>

#include "base/error.h"
#include "diffusion/solver/defaults.h"
#include "diffusion/solver/sampler_names.h"
#include "diffusion/start/levels_of_run.h"
#include "pipeline/picture_dialect.h"

namespace ebb {
namespace {

// A consistency model makes a picture in a few steps, and its guidance is part of what it learned:
// it is told the scale (Luo et al. 2023, arXiv:2310.04378: 4 steps, 8.5), or has none.
constexpr int64_t consistency_steps = 4;
constexpr double consistency_guidance = 8.5, no_guidance = 1;

void choose_consistency(GenerateOptions& o, const CheckpointParts& parts, ChoiceTexts& out) {
  if (o.steps_open) o.steps = consistency_steps;
  if (o.guidance_open)
    o.guidance =
        o.rules.empty() && is_told_guidance(parts.denoiser) ? consistency_guidance : no_guidance;
  out.notes.push_back(str("scheduler: a latent consistency model (", parts.scheduler->name,
                          "): takes --sampler ", o.sampler, " --steps ", o.steps, " --guidance ",
                          o.guidance, "; flags say others"));
}

// Rules say how much guidance there is; without them the checkpoint's file may.
void choose_guidance(GenerateOptions& o, const CheckpointParts& parts, ChoiceTexts& out) {
  if (!o.guidance_open) return;
  if (!o.rules.empty()) {
    o.guidance = no_guidance;
  } else if (parts.guidance && *parts.guidance != o.guidance) {
    out.notes.push_back(str("model: its file asks for guidance ", *parts.guidance, " (usually ",
                            o.guidance, "); --guidance sets another"));
    o.guidance = *parts.guidance;
  }
}

void choose_sampler(GenerateOptions& o, const CheckpointParts& parts, ChoiceTexts& out) {
  if (o.sampler != "auto") return;
  o.sampler = default_sampler;
  if (!parts.scheduler) return;
  const SchedulerConfig& said = *parts.scheduler;
  const bool consistency = !said.sampler.empty() && means_sampler("lcm", said.sampler);
  if (!consistency && !picture_dialect(o.dialect).scheduler_of_folder) return;
  if (said.sampler.empty()) {
    out.warnings.push_back(str("scheduler: no sampler is the folder's ", said.name, "; takes ",
                               o.sampler, "; --sampler names another"));
    return;
  }
  o.sampler = said.sampler;
  const OptionTexts own = parse_options(o.options, "generate: --options");
  for (const auto& [name, value] : said.sampler_options)
    if (std::ranges::find(own, name, &OptionTexts::value_type::first) == own.end())
      o.options += str(o.options.empty() ? "" : ",", name, "=", value);
  if (consistency) choose_consistency(o, parts, out);
}

// ebb's own choice: better in few steps than the levels that the networks were published with.
void choose_own_schedule(GenerateOptions& o, const LoadedModel& m) {
  const Family* family = find_family(m.config);
  if (!family || family->own_schedule.empty() || o.schedule != "auto" ||
      !picture_dialect(o.dialect).family_schedule || !means_sampler(default_sampler, o.sampler) ||
      !usual_schedule(o.dialect, o.sampler, Space::ve).empty())
    return;
  check_no_options(parse_options(o.schedule_options, "schedule_options"), family->own_schedule);
  o.schedule = family->own_schedule;
}

// In diffusers' dialect a schedule that is left open is that of the folder's scheduler.
void choose_schedule(GenerateOptions& o, const CheckpointParts& parts, ChoiceTexts& out) {
  if (!parts.scheduler || !picture_dialect(o.dialect).scheduler_of_folder || o.schedule != "auto")
    return;
  const ScheduleText said = schedule_of(*parts.scheduler, o.sampler);
  o.schedule = said.schedule;
  const char* comma = said.options.empty() || o.schedule_options.empty() ? "" : ",";
  o.schedule_options = str(said.options, comma, o.schedule_options);
  for (const auto* w : {&parts.scheduler->warnings, &said.warnings})
    out.warnings.insert(out.warnings.end(), w->begin(), w->end());
}

}  // namespace

ChoiceTexts choose_open(GenerateOptions& o, const CheckpointParts& parts) {
  ChoiceTexts out;
  choose_guidance(o, parts, out);
  choose_sampler(o, parts, out);
  choose_own_schedule(o, parts.denoiser);
  choose_schedule(o, parts, out);
  return out;
}

}  // namespace ebb
