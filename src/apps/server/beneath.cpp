#include "apps/server/beneath.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace ebb::server {
namespace {

constexpr int plain = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;

Descriptor open_part(int folder, const std::string& name, int flags) {
  if (name.empty() || name == "." || name == "..") return Descriptor();
  return Descriptor(::openat(folder, name.c_str(), plain | flags));
}

}  // namespace

Descriptor open_folder(const std::string& path) {
  return Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY));
}

Descriptor open_folder_beneath(const Descriptor& folder, std::string_view path) {
  Descriptor at(::fcntl(folder.number(), F_DUPFD_CLOEXEC, 0));
  while (at && !path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    at = open_part(at.number(), std::string(path.substr(0, end)), O_DIRECTORY);
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return at;
}

Descriptor open_file_beneath(const Descriptor& folder, std::string_view path) {
  const size_t slash = path.rfind('/'), name = slash == path.npos ? 0 : slash + 1;
  const Descriptor in = open_folder_beneath(folder, path.substr(0, name));
  Descriptor out = open_part(in.number(), std::string(path.substr(name)), 0);
  struct stat facts {};
  const bool is_file = out && ::fstat(out.number(), &facts) == 0 && S_ISREG(facts.st_mode);
  return is_file ? std::move(out) : Descriptor();
}

std::optional<std::string> read_beneath(const Descriptor& folder, std::string_view path,
                                        int64_t limit) {
  const Descriptor file = open_file_beneath(folder, path);
  struct stat facts {};
  if (!file || ::fstat(file.number(), &facts) != 0 || facts.st_size > limit) return {};
  std::string out(static_cast<size_t>(facts.st_size), '\0');
  for (size_t at = 0; at < out.size();) {
    const ssize_t n =
        ::pread(file.number(), out.data() + at, out.size() - at, static_cast<off_t>(at));
    if (n <= 0) return {};
    at += static_cast<size_t>(n);
  }
  return out;
}

}  // namespace ebb::server
