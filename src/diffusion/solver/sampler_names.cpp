#include "diffusion/solver/sampler_names.h"

#include "diffusion/solver/sampler.h"

namespace ebb {

SplitName split_schedule(std::string_view plain) {
  for (const std::string_view schedule : schedule_endings) {
    const std::string end = plain_name(schedule);
    if (plain.size() > end.size() && plain.ends_with(end))
      return {std::string(plain.substr(0, plain.size() - end.size())), std::string(schedule)};
  }
  return {std::string(plain), ""};
}

bool means_sampler(std::string_view entry, std::string_view asked) {
  const std::string plain = plain_name(entry);
  return plain == split_schedule(plain_name(asked)).sampler ||
         plain == plain_name(find_sampler(asked).sampler->name);
}

}  // namespace ebb
