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
// A sampler by either name: the menu's; others as they are.
std::string menu_sampler(const std::string& name);

}  // namespace ebb::server::sdapi
