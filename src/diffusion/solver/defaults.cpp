#include "diffusion/solver/defaults.h"

#include <algorithm>

#include "base/names.h"
#include "diffusion/solver/sampler.h"
#include "diffusion/solver/sampler_names.h"

namespace ebb {
namespace {

// The schedule that a name implies, as an alias or by its suffix.
std::string named_schedule(std::string_view sampler) {
  const std::string plain = plain_name(sampler);
  for (const Sampler* s : all_samplers())
    for (const SamplerAlias& a : s->aliases)
      if (!a.schedule.empty() && plain_name(a.name) == plain) return a.schedule;
  return split_schedule(plain).schedule;
}

}  // namespace

std::string usual_schedule(std::string_view dialect, std::string_view sampler, Space space) {
  const std::string own = named_schedule(sampler);
  if (!own.empty()) return own;
  const DialectDefaults& defaults = find_dialect(dialect).defaults;
  for (const SamplerSchedule& s : defaults.schedules)
    if (means_sampler(s.sampler, sampler)) return s.schedule;
  const bool flow = space == Space::flow && !defaults.flow_schedule.empty();
  return flow ? defaults.flow_schedule : defaults.schedule;
}

const NoiseSource& find_source(std::string_view name) {
  const auto& sources = all_noise_sources();
  const bool known = std::any_of(sources.begin(), sources.end(),
                                 [&](const NoiseSource* s) { return same_name(s->name, name); });
  for (const Dialect& d : all_dialects())
    require(known || !same_name(d.name, name), "noise: '", name, "' is a dialect, whose source is ",
            d.noise);
  return find_noise_source(name);
}

Noise open_default_noise(const DefaultNoise& from, const NoiseCall& call,
                         const OptionTexts& options) {
  Noise noise = open_noise(find_source(from.source).name, call, options);
  if (from.steps.empty()) return noise;
  const std::vector<Option> known = find_noise_source(from.steps).options();
  OptionTexts both = from.step_options;
  for (const auto& option : options)
    if (std::any_of(known.begin(), known.end(),
                    [&](const Option& o) { return o.name == option.first; }))
      both.push_back(option);
  NoiseCall steps = call;
  if (!noise.seeds.empty()) steps.seeds = noise.seeds;
  noise.step = open_noise(from.steps, steps, both).step;
  return noise;
}

}  // namespace ebb
