#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "base/error.h"

namespace ebb::io {
namespace {

// A signal handler can reach nothing but globals. `file` is free to be claimed where it is null,
// and looked at only by who found its address in the range: it exists then.
struct Range {
  std::atomic<const MappedFile*> file = nullptr;
  std::atomic<uintptr_t> begin = 0, end = 0;  // 0: not yet, or no longer
};
static_assert(std::atomic<uintptr_t>::is_always_lock_free);
std::array<Range, 1024> ranges;

}  // namespace

CutShort cut_short(std::string_view subject, int64_t size, const std::string& name) {
  return {.before = str(subject, ": file was cut short while it was read ("),
          .after = str(" of ", size, " bytes left)  ", name)};
}

MappedFile::MappedFile(int fd, int64_t bytes, CutShort sentence)
    : fd_(::fcntl(fd, F_DUPFD_CLOEXEC, 0)), bytes_(bytes), sentence_(std::move(sentence)) {}

MappedFile::~MappedFile() {
  for (Range& r : ranges) {
    if (r.file != this) continue;
    r.end = 0;
    r.begin = 0;
    r.file = nullptr;
  }
  if (data_) ::munmap(data_, static_cast<size_t>(bytes_));
  if (fd_ >= 0) ::close(fd_);
}

bool MappedFile::enter() {
  const auto begin = reinterpret_cast<uintptr_t>(data_);
  for (Range& r : ranges) {
    const MappedFile* nobody = nullptr;
    if (!r.file.compare_exchange_strong(nobody, this)) continue;
    r.begin = begin;
    r.end = begin + static_cast<uintptr_t>(bytes_);
    return true;
  }
  return false;
}

std::shared_ptr<MappedFile> MappedFile::map(int fd, int64_t bytes, CutShort sentence) {
  const std::shared_ptr<MappedFile> out(new MappedFile(fd, bytes, std::move(sentence)));
  if (out->fd_ < 0) return nullptr;
  void* data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return nullptr;
  out->data_ = data;
  return out->enter() ? out : nullptr;
}

const MappedFile* MappedFile::at(const void* address) {
  const auto a = reinterpret_cast<uintptr_t>(address);
  for (const Range& r : ranges)
    if (r.begin <= a && a < r.end) return r.file;
  return nullptr;
}

int64_t MappedFile::bytes_left() const {
  struct stat s {};
  return ::fstat(fd_, &s) == 0 ? std::min<int64_t>(s.st_size, bytes_) : 0;
}

}  // namespace ebb::io
