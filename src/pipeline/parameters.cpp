#include "pipeline/parameters.h"

#include <array>

#include "base/error.h"
#include "base/version.h"
#include "diffusion/solver/sampler.h"
#include "pipeline/infotext.h"

namespace ebb {
namespace {

// The names of the web UI's menus; ebb's differ in case, spaces and signs.
constexpr std::array samplers{"Euler",        "Euler a",      "LMS",          "Heun",
                              "DPM2",         "DPM2 a",       "DPM++ 2S a",   "DPM++ 2M",
                              "DPM++ SDE",    "DPM++ 2M SDE", "DPM++ 3M SDE", "DPM fast",
                              "DPM adaptive", "Restart",      "DDIM",         "DDIM CFG++",
                              "PLMS",         "UniPC",        "LCM"};
constexpr std::array schedules{"Automatic",
                               "Uniform",
                               "Karras",
                               "Exponential",
                               "Polyexponential",
                               "SGM Uniform",
                               "KL Optimal",
                               "Align Your Steps",
                               "Simple",
                               "Normal",
                               "DDIM",
                               "Beta",
                               "Turbo"};

std::string menu_name(const std::string& name, auto&& menu) {
  for (const char* entry : menu)
    if (plain_name(entry) == plain_name(name)) return entry;
  return name;
}

// By any of its names.
std::string sampler_menu_name(const std::string& name) {
  const FoundSampler own = find_sampler(name);
  for (const char* entry : samplers)
    if (const FoundSampler s = find_sampler(entry);
        s.sampler == own.sampler && s.options == own.options)
      return entry;
  return name;
}

}  // namespace

std::string parameters_text(const PictureParameters& p) {
  const GenerateOptions& o = p.options;
  Infotext t{.prompt = p.prompt, .negative = p.negative, .values = {}};
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) t.values.emplace_back(key, value);
  };
  add("Steps", str(o.steps));
  add("Sampler", sampler_menu_name(o.sampler));
  add("Schedule type", menu_name(o.schedule, schedules));
  add("CFG scale", str(o.guidance));
  add("Seed", str(o.seed));
  add("Size", str(p.size.width, 'x', p.size.height));
  add("Model hash", p.model_hash);
  add("Model", p.model);
  add("VAE", p.vae);
  if (p.clip_skip > 1) add("Clip skip", str(p.clip_skip));
  for (const auto& [key, value] : p.more) add(key.c_str(), value);
  add("Version", str("ebb ", version));
  return infotext(t);
}

}  // namespace ebb
