// The names in the menus of AUTOMATIC1111's web UI, which stand in its pictures, and those of
// k-diffusion that its clients also send. ebb's own differ in case, spaces and signs.
#pragma once

#include <span>

namespace ebb {

struct MenuName {
  const char *name, *alias;
};
std::span<const MenuName> sampler_menu();
std::span<const MenuName> schedule_menu();

}  // namespace ebb
