#include "core/host_memory.h"

#include <sys/sysinfo.h>

#include <fstream>
#include <string>

namespace ebb {

int64_t free_host_memory() {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("MemAvailable:")) return std::stoll(line.substr(13)) * 1024;
  struct sysinfo info {};
  return sysinfo(&info) == 0 ? static_cast<int64_t>(info.freeram) * info.mem_unit : 0;
}

}  // namespace ebb
