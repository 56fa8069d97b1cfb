// The names in A1111's menus, and those of k-diffusion that its clients also send.
#pragma once

#include <span>
#include <string>

namespace ebb::server::sdapi {

struct MenuName {
  const char *name, *alias;
};
std::span<const MenuName> sampler_menu();
std::span<const MenuName> schedule_menu();
// What clients call a sampler: by either name, perhaps with a schedule of the menu behind it
// ("DPM++ 2M Align Your Steps"), which is "" where there is none, or where ebb knows the whole
// name.
struct MenuChoice {
  std::string sampler, schedule;
};
MenuChoice menu_choice(const std::string& name);

}  // namespace ebb::server::sdapi
