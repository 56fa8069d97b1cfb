// Sampler names of programs and tables.
#pragma once

#include <string>
#include <string_view>

namespace ebb {

// Suffixes of sampler names in programs; longer ones before their own suffixes.
inline constexpr std::string_view schedule_endings[] = {"polyexponential", "exponential", "karras",
                                                        "sgm_uniform"};

// "DPM++ 2M Karras" is a sampler and a schedule. Of plain names (plain_name()); `schedule` is "" if
// there is none.
struct SplitName {
  std::string sampler, schedule;
};
SplitName split_schedule(std::string_view plain);

// Whether a table entry matches a sampler: by the requested name, or by the sampler's own. Throws
// Error for unknown samplers.
bool means_sampler(std::string_view entry, std::string_view asked);

}  // namespace ebb
