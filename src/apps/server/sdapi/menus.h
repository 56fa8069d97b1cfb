// What clients of A1111 call samplers.
#pragma once

#include <string>

namespace ebb::server::sdapi {

// What clients call a sampler: by either name, perhaps with a schedule of the menu behind it
// ("DPM++ 2M Align Your Steps"), which is "" where there is none, or where ebb knows the whole
// name.
struct MenuChoice {
  std::string sampler, schedule;
};
MenuChoice menu_choice(const std::string& name);

}  // namespace ebb::server::sdapi
