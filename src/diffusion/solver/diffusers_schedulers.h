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
  // Options that a value of a field stands for.
  struct Meaning {
    std::string_view field, value;
    OptionTexts options;
  };
  std::vector<Meaning> meanings = {};

  // Of a config, whose fields are texts: "true", "2", "[0,1]"; none: it does not say.
  OptionTexts options_of(
      const std::function<std::optional<std::string>(std::string_view field)>& config) const;
};

// nullptr for classes that there are none of.
const DiffusersScheduler* find_diffusers_scheduler(std::string_view name);

}  // namespace ebb
