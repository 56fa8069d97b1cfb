// tar archives (POSIX.1-2001): ustar, with the long names of pax and GNU. Read in place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/file.h"

namespace ebb::io {

struct TarMember {
  std::string name;
  int64_t offset = 0, size = 0;  // of its bytes in the archive
};

// The regular files, in the archive's order. Throws Error "tar: ..." for what is no archive, is cut
// short or damaged.
std::vector<TarMember> tar_members(const ReadFile& archive);

}  // namespace ebb::io
