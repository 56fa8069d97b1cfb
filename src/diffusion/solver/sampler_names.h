// Names of samplers as programs and tables have them.
#pragma once

#include <string>
#include <string_view>

namespace ebb {

// What programs put behind the names of samplers; the longer before the shorter that it ends with.
inline constexpr std::string_view schedule_endings[] = {"polyexponential", "exponential", "karras",
                                                        "sgm_uniform"};

// "DPM++ 2M Karras" is a sampler and a schedule. Of plain names (plain_name()); `schedule` is "" if
// there is none.
struct SplitName {
  std::string sampler, schedule;
};
SplitName split_schedule(std::string_view plain);

// Whether an entry of a table means a sampler: by the name that was asked for, or by the sampler's
// own. Throws Error for samplers that do not exist.
bool means_sampler(std::string_view entry, std::string_view asked);

}  // namespace ebb
