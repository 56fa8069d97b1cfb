#include "pipeline/parameters.h"

#include "base/error.h"
#include "base/version.h"
#include "diffusion/solver/sampler.h"
#include "pipeline/infotext.h"
#include "pipeline/web_ui_menus.h"

namespace ebb {
namespace {

std::string schedule_menu_name(const std::string& name) {
  for (const MenuName& m : schedule_menu())
    if (plain_name(m.name) == plain_name(name)) return m.name;
  return name;
}

// By any of its names.
std::string sampler_menu_name(const std::string& name) {
  const FoundSampler own = find_sampler(name);
  for (const MenuName& m : sampler_menu())
    if (const FoundSampler s = find_sampler(m.name);
        s.sampler == own.sampler && s.options == own.options)
      return m.name;
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
  add("Schedule type", schedule_menu_name(o.schedule));
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
