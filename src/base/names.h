// Names: the nearest of a list of known names, for errors that suggest one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ebb {

// The known name with the smallest edit distance to `name`, or "" if none is close (distance
// above a third of the length, at least 2).
std::string nearest_name(std::string_view name, std::span<const std::string> known);

// " (did you mean 'x'?)", or a list of all the names if none is near.
std::string suggestion(std::string_view name, std::span<const std::string> known);

}  // namespace ebb
