#include "base/temporary.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

namespace ebb {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view mark = ".tmp-";

// "123-4".
bool is_number_of_temporary(std::string_view text) {
  const size_t dash = text.find('-');
  const auto digits = [](std::string_view part) {
    return !part.empty() && part.find_first_not_of("0123456789") == part.npos;
  };
  return dash != text.npos && digits(text.substr(0, dash)) && digits(text.substr(dash + 1));
}

// Files are opened for writing too, which locks of NFS ask for.
int open_any(const std::string& path) {
  constexpr int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int file = ::open(path.c_str(), O_RDWR | flags);
  return file >= 0 || errno != EISDIR ? file : ::open(path.c_str(), O_RDONLY | flags);
}

}  // namespace

std::string temporary_name(const std::string& path) {
  static std::atomic<int> next = 0;
  return path + std::string(mark) + std::to_string(::getpid()) + "-" + std::to_string(next++);
}

bool hold_temporary(int descriptor) {
  while (::flock(descriptor, LOCK_EX) != 0)
    if (errno != EINTR) return true;  // no locks: nobody removes it
  struct stat s {};
  return ::fstat(descriptor, &s) != 0 || s.st_nlink > 0;
}

void remove_abandoned(const std::string& path) {
  const fs::path place(path);
  const std::string begin = place.filename().string() + std::string(mark);
  const fs::path folder = place.has_parent_path() ? place.parent_path() : ".";
  std::error_code error;
  std::vector<std::string> found;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename().string();
    if (name.starts_with(begin) && is_number_of_temporary(name.substr(begin.size())))
      found.push_back(i->path().string());
  }
  for (const std::string& name : found) {
    const Descriptor held(open_any(name));
    if (held && ::flock(held.number(), LOCK_EX | LOCK_NB) == 0) fs::remove_all(name, error);
  }
}

int Descriptor::close() {
  const int number = std::exchange(number_, -1);
  return number < 0 || ::close(number) == 0 ? 0 : errno;
}

}  // namespace ebb
