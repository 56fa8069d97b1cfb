// diffusers' schedulers by the names of their classes: the samplers that they are, and which fields
// of their configs are options of these.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/options.h"

namespace ebb {

struct DiffusersScheduler {
  std::string_view name;     // of the class
  std::string_view sampler;  // as its config has it without a word
  OptionTexts options = {};  // where the config says nothing, others than the sampler's own
  // Fields of the config that are options, and the options' names.
  std::vector<std::pair<std::string_view, std::string_view>> fields = {};
  // What a value of a field stands for: options, another sampler.
  struct Meaning {
    std::string_view field, value;
    OptionTexts options = {};
    std::string_view sampler = {};  // "": the same
  };
  std::vector<Meaning> meanings = {};
  // Values of fields, "": any, that the sampler does not follow, and what it does.
  struct Unfollowed {
    std::string_view field, value, instead;
  };
  std::vector<Unfollowed> unfollowed = {};

  // Of a config, whose fields are texts: "true", "2", "[0,1]"; none: it does not say.
  struct Meant {
    std::string_view sampler;
    OptionTexts options;
    std::vector<Unfollowed> unfollowed;
  };
  Meant meant_by(
      const std::function<std::optional<std::string>(std::string_view field)>& config) const;
};

// nullptr for classes that there are none of.
const DiffusersScheduler* find_diffusers_scheduler(std::string_view name);

}  // namespace ebb
