// Which fields of DiffusionConfig say something of which networks.
#pragma once

#include <string_view>

namespace ebb {

// Whether a field applies to networks with this precond (check_applies() in diffusion/config.h).
bool applies(std::string_view field, std::string_view precond);

}  // namespace ebb
