#include "apps/server/sdapi/menus.h"

#include "apps/server/catalogue.h"
#include "base/error.h"
#include "base/names.h"
#include "diffusion/solver/sampler.h"
#include "diffusion/solver/sampler_names.h"
#include "pipeline/web_ui_menus.h"

namespace ebb::server::sdapi {
namespace {

bool is_sampler(const std::string& name) {
  try {
    find_sampler(split_schedule(plain_name(name)).sampler);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

MenuChoice menu_choice(const std::string& name) {
  if (name.size() > longest_name) return {name, ""};  // which is no sampler
  for (const MenuName& m : sampler_menu())
    if (small_letters(name) == m.alias) return {m.name, ""};
  if (is_sampler(name)) return {name, ""};
  MenuChoice out{name, ""};
  size_t longest = 0;
  for (const MenuName& m : schedule_menu())
    for (const std::string_view ending : {m.name, m.alias}) {
      const std::string text = small_letters(name), small = small_letters(std::string(ending));
      if (!text.ends_with(small) || small.size() <= longest) continue;
      const std::string before(
          trimmed(std::string_view(name).substr(0, name.size() - small.size())));
      if (!is_sampler(before)) continue;
      longest = small.size();
      out = {before, m.name};
    }
  return out;
}

}  // namespace ebb::server::sdapi
