// The C API's settings of a sampler: numbers that follow from each other are worked out anew after
// every change, so their order does not matter.
#include <algorithm>

#include "base/names.h"
#include "capi/handle.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/solver/sampler.h"
#include "diffusion/start/strength.h"

namespace ebb::capi {
namespace {

const std::vector<std::string> predictions = {"eps", "v",     "x0",   "edm",     "edm_v",
                                              "ve",  "rflow", "flow", "dataward"};

Prediction usual_prediction(const std::string& levels) {
  if (levels == "flow") return Prediction::flow;
  if (levels == "edm") return Prediction::edm;
  if (levels == "ve") return Prediction::ve;
  if (levels == "rflow") return Prediction::rflow;
  if (levels == "atan") return Prediction::v;
  return Prediction::eps;
}

Prediction find_prediction(const NetworkOptions& o) {
  if (o.prediction == "usual") return usual_prediction(o.levels.levels);
  const auto found = std::find(predictions.begin(), predictions.end(), o.prediction);
  const auto p = static_cast<Prediction>(found - predictions.begin());
  const bool flow = p == Prediction::flow || p == Prediction::dataward;
  require(flow == (o.levels.levels == "flow"), "sampler: prediction ", o.prediction,
          " does not go with levels ", o.levels.levels);
  return p;
}

bool sets(const OptionTexts& texts, std::string_view name) {
  return std::any_of(texts.begin(), texts.end(), [&](const auto& t) { return t.first == name; });
}

void settle_network(ebb_sampler& s) {
  OptionTexts texts = s.network;
  const bool flow = s.space == Space::flow;
  if (flow && !sets(texts, "levels")) texts.insert(texts.begin(), {"levels", "flow"});
  const auto o = read_options<NetworkOptions>(texts, "levels");
  s.levels = discretisation(o.levels);
  require(!s.space || *s.space == s.levels.space, "sampler: levels ", o.levels.levels,
          " are of space ", name_of(s.levels.space), ", not ",
          name_of(s.space.value_or(Space::ve)));
  s.prediction = find_prediction(o);
  s.sigma_data = o.sigma_data;
  s.call.space = s.levels.space;
  s.call.table.clear();
  s.call.round_sigma = nullptr;
  if (s.network.empty()) return;  // levels that the caller gives may be any
  if (s.levels.told == Told::table) s.call.table = s.levels.sigmas;
  if (s.levels.whole)
    s.call.round_sigma = [levels = s.levels](double sigma) { return levels.round(sigma); };
}

bool discards_penultimate(const ebb_sampler& s) {
  const std::vector<std::string>& names = find_dialect(s.call.dialect).discard_penultimate;
  const auto has = [&](const std::string& n) {
    return std::find(names.begin(), names.end(), n) != names.end();
  };
  return has(s.name) || has(find_sampler(s.name).sampler->name);
}

void settle_schedule(ebb_sampler& s) {
  if (s.schedule.name.empty()) return;
  const auto o = read_options<ListOptions>(s.schedule.list, "schedule");
  ScheduleCall call{.steps = s.schedule.steps,
                    .sigma_min = o.sigma_min,
                    .sigma_max = o.sigma_max,
                    .options = s.schedule.options,
                    .dialect = s.call.dialect,
                    .discard_penultimate = discards_penultimate(s)};
  // Schedules that know what to do with a part of the way, and whole ways, are taken as they are.
  const bool own = find_schedule(s.schedule.name).schedule->own_denoise;
  if (own) call.denoise = o.strength;
  if (own || !sets(s.schedule.list, "strength")) {
    s.call.sigmas = noise_levels(s.schedule.name, s.levels, call);
    return;
  }
  const StartPlan plan = plan_strength(s.call.dialect, s.schedule.steps, o.strength,
                                       {.exact_steps = o.exact_steps, .space = s.levels.space});
  call.steps = plan.steps;
  s.call.sigmas = planned_levels(noise_levels(s.schedule.name, s.levels, call), plan);
}

void configure(ebb_sampler& s, const std::string& key, const std::string& value) {
  const std::vector<std::string> known = {"space", "dialect",     "seed",
                                          "noise", "first_image", "layout"};
  if (key == "space") {
    require(value == "ve" || value == "flow", "sampler: space must be ve or flow (got '", value,
            "')");
    s.space = value == "ve" ? Space::ve : Space::flow;
  } else if (key == "dialect") {
    s.call.dialect = find_dialect(value).name;
  } else if (key == "seed") {
    s.noise.seed = static_cast<uint64_t>(parse_integer(value, "seed"));
  } else if (key == "noise") {
    s.noise.source = value.empty() ? value : find_noise_source(value).name;
    s.noise.options.clear();
  } else if (key == "first_image") {
    s.noise.first_image = parse_integer(value, "first_image");
    require(s.noise.first_image >= 0, "sampler: first_image must not be negative (", value, ")");
  } else if (key == "layout") {
    require(value == "hwc" || value == "chw", "sampler: layout must be hwc or chw (got '", value,
            "')");
    s.noise.channels_first = value == "chw";
  } else {
    fail("sampler: unknown key '", key, "'", suggestion(key, known));
  }
}

// Throws Error unless the source has these options and can take their values.
void check_noise(const ebb_sampler& s) {
  if (s.noise.options.empty()) return;
  const std::string& source =
      s.noise.source.empty() ? find_dialect(s.call.dialect).noise : s.noise.source;
  const NoiseCall call{.shape = {2, 2, 2}, .sigmas = {1, 0.5}};
  open_noise(source, call, s.noise.options);
}

}  // namespace

void NetworkOptions::check() const {
  const bool known =
      std::find(predictions.begin(), predictions.end(), prediction) != predictions.end();
  require(known || prediction == "usual", "levels: unknown prediction '", prediction, "'",
          suggestion(prediction, predictions));
  require(sigma_data > 0, "levels: sigma_data must be positive (", sigma_data, ")");
}

void settle(ebb_sampler& s) {
  settle_network(s);
  settle_schedule(s);
  check_noise(s);
}

}  // namespace ebb::capi

using ebb::capi::changed;
using ebb::capi::require_given;

ebb_status ebb_sampler_set(ebb_sampler* sampler, const char* option, const char* value) {
  return changed(sampler, [&](ebb_sampler& s) {
    require_given(option, "option");
    require_given(value, "value");
    s.call.options.emplace_back(option, value);
    ebb::check_options(s.name, s.call.options);
  });
}

ebb_status ebb_sampler_configure(ebb_sampler* sampler, const char* key, const char* value) {
  return changed(sampler, [&](ebb_sampler& s) {
    require_given(key, "key");
    require_given(value, "value");
    ebb::capi::configure(s, key, value);
  });
}

ebb_status ebb_sampler_set_sigmas(ebb_sampler* sampler, const double* sigmas, size_t count) {
  return changed(sampler, [&](ebb_sampler& s) {
    require_given(sigmas, "sigmas");
    s.call.sigmas.assign(sigmas, sigmas + count);
    s.schedule = {};
  });
}

ebb_status ebb_sampler_set_levels(ebb_sampler* sampler, const char* option, const char* value) {
  return changed(sampler, [&](ebb_sampler& s) {
    require_given(option, "option");
    require_given(value, "value");
    s.network.emplace_back(option, value);
  });
}

ebb_status ebb_sampler_set_schedule(ebb_sampler* sampler, const char* name, int64_t steps) {
  return changed(sampler, [&](ebb_sampler& s) {
    require_given(name, "name");
    ebb::find_schedule(name);
    s.schedule = {.name = name, .steps = steps};
  });
}

ebb_status ebb_sampler_set_schedule_option(ebb_sampler* sampler, const char* option,
                                           const char* value) {
  return changed(sampler, [&](ebb_sampler& s) {
    require_given(option, "option");
    require_given(value, "value");
    ebb::require(!s.schedule.name.empty(), "sampler: needs a schedule before its option '", option,
                 "'");
    bool of_list = false;
    for (const ebb::Option& o : ebb::describe<ebb::capi::ListOptions>())
      of_list = of_list || o.name == option;
    (of_list ? s.schedule.list : s.schedule.options).emplace_back(option, value);
  });
}

ebb_status ebb_sampler_set_noise_option(ebb_sampler* sampler, const char* option,
                                        const char* value) {
  return changed(sampler, [&](ebb_sampler& s) {
    require_given(option, "option");
    require_given(value, "value");
    s.noise.options.emplace_back(option, value);
  });
}

ebb_status ebb_sampler_set_seeds(ebb_sampler* sampler, const uint64_t* seeds, size_t count) {
  return changed(sampler, [&](ebb_sampler& s) {
    if (count > 0) require_given(seeds, "seeds");
    s.noise.seeds.assign(seeds, seeds + count);
  });
}

ebb_status ebb_sampler_set_shape(ebb_sampler* sampler, size_t height, size_t width,
                                 size_t channels) {
  return changed(sampler, [&](ebb_sampler& s) {
    ebb::require(height > 0 && width > 0 && channels > 0, "sampler: sizes must be positive (",
                 height, " x ", width, " x ", channels, ")");
    s.noise.shape = {static_cast<int64_t>(height), static_cast<int64_t>(width),
                     static_cast<int64_t>(channels)};
  });
}

ebb_status ebb_sampler_set_progress(ebb_sampler* sampler, ebb_progress progress, void* user) {
  return ebb::capi::guarded([&] {
    require_given(sampler, "sampler");
    sampler->progress = progress;
    sampler->progress_user = user;
  });
}

ebb_status ebb_sampler_set_noise(ebb_sampler* sampler, ebb_noise noise, void* user) {
  return ebb::capi::guarded([&] {
    require_given(sampler, "sampler");
    sampler->noise.callback = noise;
    sampler->noise.user = user;
  });
}
