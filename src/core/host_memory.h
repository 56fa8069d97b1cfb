// Free host memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ebb {

// Bytes that can be allocated without swapping, within the limits of the process's control groups
// (of a container or a job). The page cache counts as free.
int64_t free_host_memory();

// The bytes that the limits leave, from the text of /proc/self/cgroup and the mount point of the
// control groups, version 2 or 1; none: no limit.
std::optional<int64_t> cgroup_room(const std::string& groups, const std::string& mounted);

}  // namespace ebb
