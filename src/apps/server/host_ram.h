// The host's memory, as programs of others ask for it.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "core/host_memory.h"

namespace ebb::server {

struct HostRam {
  int64_t free = free_host_memory();
  int64_t total = std::max<int64_t>(free, ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE));
};

}  // namespace ebb::server
