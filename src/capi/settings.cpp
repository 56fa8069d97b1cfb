// The C API's settings of a sampler: names and values alone are checked when they are set, and how
// they go together when something is asked of the sampler, so their order does not matter.
#include <algorithm>

#include "base/names.h"
#include "base/seed.h"
#include "capi/handle.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/solver/defaults.h"
#include "diffusion/solver/sampler.h"

namespace ebb::capi {
namespace {

uint64_t parse_seed(const std::string& text) {
  Seed seed;
  seed.parse(text);
  return seed;
}

void configure(ebb_sampler& s, const std::string& key, const std::string& value) {
  const std::vector<std::string> known = {"space", "dialect",     "seed",
                                          "noise", "first_image", "layout"};
  check_known("sampler: unknown key", key, known);
  if (key == "space") {
    require(value == "ve" || value == "flow", "sampler: space must be ve or flow (got '", value,
            "')");
    s.choice.space = value == "ve" ? Space::ve : Space::flow;
  } else if (key == "dialect") {
    s.choice.dialect = find_dialect(value).name;
  } else if (key == "seed") {
    s.noise.seed = parse_seed(value);
  } else if (key == "noise") {
    s.noise.source = value.empty() ? value : find_source(value).name;
    s.noise.options.clear();
  } else if (key == "first_image") {
    s.noise.first_image = parse_integer(value, "first_image");
    require(s.noise.first_image >= 0, "sampler: first_image must not be negative (", value, ")");
  } else {  // layout
    require(value == "hwc" || value == "chw", "sampler: layout must be hwc or chw (got '", value,
            "')");
    s.noise.channels_first = value == "chw";
  }
}

// The options of the schedules that the name stands for in one dialect or another: which one it is
// may be said later. Throws Error if none has the name.
std::vector<Option> schedule_options(const std::string& name) {
  std::vector<Option> all;
  bool known = false;
  for (const Dialect& d : all_dialects()) {
    try {
      const std::vector<Option> own = find_schedule(name, d).schedule->options();
      all.insert(all.end(), own.begin(), own.end());
      known = true;
    } catch (const Error&) {  // not in this one
    }
  }
  if (!known) find_schedule(name);
  return all;
}

// The options of the source; of all where the dialect, which may change, says which it is.
std::vector<Option> noise_options(const ebb_sampler& s) {
  if (!s.noise.source.empty()) return find_noise_source(s.noise.source).options();
  std::vector<Option> all;
  for (const NoiseSource* source : all_noise_sources()) {
    const std::vector<Option> own = source->options();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

}  // namespace
}  // namespace ebb::capi

using ebb::capi::changed;
using ebb::capi::require_given;

ebb_status ebb_sampler_set(ebb_sampler* sampler, const char* option, const char* value) {
  return changed(sampler, [&](ebb_sampler& s) {
    require_given(option, "option");
    require_given(value, "value");
    ebb::check_option(ebb::find_sampler(s.choice.sampler).sampler->options(), {option, value},
                      s.choice.sampler);
    s.choice.options.emplace_back(option, value);
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
    ebb::check_levels({sigmas, sigmas + count}, ebb::Space::ve);  // a flow's end may be said later
    s.choice.sigmas.assign(sigmas, sigmas + count);
    s.choice.schedule = {};
  });
}

ebb_status ebb_sampler_set_levels(ebb_sampler* sampler, const char* option, const char* value) {
  return changed(sampler, [&](ebb_sampler& s) {
    require_given(option, "option");
    require_given(value, "value");
    ebb::read_options<ebb::NetworkOptions>({{option, value}}, "levels");
    s.choice.network.emplace_back(option, value);
  });
}

ebb_status ebb_sampler_set_schedule(ebb_sampler* sampler, const char* name, int64_t steps) {
  return changed(sampler, [&](ebb_sampler& s) {
    require_given(name, "name");
    if (std::string_view(name) != "auto") ebb::capi::schedule_options(name);
    ebb::check_steps(steps);
    s.choice.schedule = {.name = name, .steps = steps};
  });
}

ebb_status ebb_sampler_set_schedule_option(ebb_sampler* sampler, const char* option,
                                           const char* value) {
  return changed(sampler, [&](ebb_sampler& s) {
    require_given(option, "option");
    require_given(value, "value");
    ebb::capi::ScheduleChoice& schedule = s.choice.schedule;
    ebb::require(!schedule.name.empty(), "sampler: needs a schedule before its option '", option,
                 "'");
    const std::vector<ebb::Option> list = ebb::describe<ebb::capi::ListOptions>();
    const bool of_list = std::any_of(list.begin(), list.end(),
                                     [&](const ebb::Option& o) { return o.name == option; });
    if (of_list) {
      ebb::read_options<ebb::capi::ListOptions>({{option, value}}, "schedule");
    } else {
      ebb::require(schedule.name != "auto", "sampler: schedule auto has no options (got ", option,
                   ")");
      ebb::check_option(ebb::capi::schedule_options(schedule.name), {option, value}, schedule.name);
    }
    (of_list ? schedule.list : schedule.options).emplace_back(option, value);
  });
}

ebb_status ebb_sampler_set_noise_option(ebb_sampler* sampler, const char* option,
                                        const char* value) {
  return changed(sampler, [&](ebb_sampler& s) {
    require_given(option, "option");
    require_given(value, "value");
    ebb::check_option(ebb::capi::noise_options(s), {option, value}, "noise");
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
    ebb::require(width <= ebb::capi::largest_buffer / height &&
                     channels <= ebb::capi::largest_buffer / (height * width),
                 "sampler: no buffer holds an image of ", height, " x ", width, " x ", channels);
    s.noise.shape = {static_cast<int64_t>(height), static_cast<int64_t>(width),
                     static_cast<int64_t>(channels)};
  });
}

ebb_status ebb_sampler_set_progress(ebb_sampler* sampler, ebb_progress progress, void* user) {
  return changed(sampler, [&](ebb_sampler& s) {
    s.progress = progress;
    s.progress_user = user;
  });
}

ebb_status ebb_sampler_set_noise(ebb_sampler* sampler, ebb_noise noise, void* user) {
  return changed(sampler, [&](ebb_sampler& s) {
    s.noise.callback = noise;
    s.noise.user = user;
  });
}
