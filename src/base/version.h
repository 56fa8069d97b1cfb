// The version of ebb, from CMakeLists.txt.
#pragma once

namespace ebb {

inline constexpr const char* version =
#include "ebb/gen/version.inc"
    ;

}  // namespace ebb
