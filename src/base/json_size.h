// How large JSON is, told before it is read.
#pragma once

#include <cstddef>
#include <string_view>

namespace ebb {

struct JsonSize {
  size_t depth = 0;   // of arrays and objects within each other
  size_t values = 0;  // at most so many
  size_t names = 0;   // of the object that has most, no deeper than json_depth_limit
};

// Of `text`, which need not be JSON.
JsonSize json_size(std::string_view text);

}  // namespace ebb
