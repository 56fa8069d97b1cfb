// What the machine's own memory still has to give.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ebb {

// Bytes that can be taken without others' being written to disk, and that the limits of the
// process's control groups (a container's, a job's) leave; the cache of files counts as free.
int64_t free_host_memory();

// What the limits leave, by the text of /proc/self/cgroup and the folder where control groups are
// mounted, of version 2 or 1; none: there is no limit.
std::optional<int64_t> cgroup_room(const std::string& groups, const std::string& mounted);

}  // namespace ebb
