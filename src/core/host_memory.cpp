#include "core/host_memory.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

namespace ebb {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The number that begins the text; none: "max", or no file.
std::optional<int64_t> number_of(const std::string& text) {
  int64_t n = 0;
  const auto [at, fault] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (fault != std::errc() || n < 0) return {};
  return n;
}

// What the versions of control groups call their files and numbers.
struct Files {
  std::string limit, used, active, inactive;
};

// Of one group, without those around it.
std::optional<int64_t> room_of(const std::string& folder, const Files& f) {
  const auto limit = number_of(text_of(folder + f.limit)),
             used = number_of(text_of(folder + f.used));
  if (!limit || !used) return {};
  int64_t cached = 0;
  std::istringstream in(text_of(folder + "/memory.stat"));
  for (std::string name, number; in >> name >> number;)
    if (name == f.active || name == f.inactive) cached += number_of(number).value_or(0);
  return std::max<int64_t>(*limit - std::max<int64_t>(*used - cached, 0), 0);
}

// Of the group and all around it. In a container, paths may be those of the machine outside, and
// what is mounted is the container's own group.
std::optional<int64_t> least_room(const std::string& mounted, std::string path, const Files& f) {
  std::optional<int64_t> least;
  for (;; path.resize(path.rfind('/'))) {
    if (path.ends_with('/')) path.pop_back();
    const auto here = room_of(mounted + path, f);
    if (here) least = std::min(*here, least.value_or(*here));
    if (path.find('/') == path.npos) return least;
  }
}

}  // namespace

std::optional<int64_t> cgroup_room(const std::string& groups, const std::string& mounted) {
  const Files two = {"/memory.max", "/memory.current", "active_file", "inactive_file"};
  const Files one = {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_active_file",
                     "total_inactive_file"};
  std::optional<int64_t> least;
  std::istringstream in(groups);
  for (std::string line; std::getline(in, line);) {  // number:controllers:path
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string path = line.substr(second + 1);
    const std::string kinds = "," + line.substr(first + 1, second - first - 1) + ",";
    std::optional<int64_t> room;
    if (kinds == ",,") room = least_room(mounted, path, two);
    if (kinds.find(",memory,") != kinds.npos) room = least_room(mounted + "/memory", path, one);
    if (room) least = std::min(*room, least.value_or(*room));
  }
  return least;
}

namespace {

int64_t free_machine_memory() {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("MemAvailable:")) return std::stoll(line.substr(13)) * 1024;
  struct sysinfo info {};
  return sysinfo(&info) == 0 ? static_cast<int64_t>(info.freeram) * info.mem_unit : 0;
}

}  // namespace

int64_t free_host_memory() {
  const int64_t machine = free_machine_memory();
  const auto room = cgroup_room(text_of("/proc/self/cgroup"), "/sys/fs/cgroup");
  return std::min(machine, room.value_or(machine));
}

}  // namespace ebb
