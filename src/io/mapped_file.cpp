#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace ebb::io {
namespace {

// A signal handler can reach nothing but globals. A range is free where `file` is null; a handler
// looks at that only where it found its address in the range: it exists then.
struct Range {
  std::atomic<MappedFile*> file = nullptr;
  std::atomic<uintptr_t> begin = 0, end = 0;  // 0: not yet, or no longer
};
static_assert(std::atomic<uintptr_t>::is_always_lock_free);
std::array<Range, 1024> ranges;
std::mutex entering;  // for all but handlers
std::atomic<void (*)()> first = nullptr;

auto range_of(const MappedFile* file) {
  return std::ranges::find_if(ranges, [&](const Range& r) { return r.file == file; });
}

}  // namespace

CutShort cut_short(std::string_view subject, int64_t size, const std::string& name) {
  return {.before = str(subject, ": file was cut short while it was read ("),
          .after = str(" of ", size, " bytes left)  ", name)};
}

FileVersion version_of(int descriptor) {
  struct stat s {};
  if (::fstat(descriptor, &s) != 0) return {};
  return {.size = s.st_size, .seconds = s.st_mtim.tv_sec, .nanoseconds = s.st_mtim.tv_nsec};
}

MappedFile::MappedFile(int fd, MappedAs as)
    : file_(::fcntl(fd, F_DUPFD_CLOEXEC, 0)), as_(std::move(as)) {}

MappedFile::~MappedFile() {
  leave();
  if (data_) ::munmap(data_, static_cast<size_t>(bytes()));
}

bool MappedFile::enter() {
  const std::lock_guard lock(entering);
  const auto begin = reinterpret_cast<uintptr_t>(data_);
  const auto free = range_of(nullptr);
  if (free == ranges.end()) return false;
  free->file = this;
  free->begin = begin;
  free->end = begin + static_cast<uintptr_t>(bytes());
  return true;
}

void MappedFile::leave() {
  const std::lock_guard lock(entering);
  const auto own = range_of(this);
  if (own == ranges.end()) return;
  own->end = 0;
  own->begin = 0;
  own->file = nullptr;
}

void MappedFile::before_first(void (*prepare)()) {
  const auto mapped = [](const Range& r) { return r.file != nullptr; };
  if (std::ranges::any_of(ranges, mapped)) return prepare();
  first = prepare;
}

std::shared_ptr<MappedFile> MappedFile::map(int fd, MappedAs as) {
  if (auto* const prepare = first.exchange(nullptr)) prepare();
  const std::shared_ptr<MappedFile> out(new MappedFile(fd, std::move(as)));
  if (!out->file_) return nullptr;
  const auto bytes = static_cast<size_t>(out->bytes());
  void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return nullptr;
  out->data_ = data;
  return out->enter() ? out : nullptr;
}

std::vector<std::string> MappedFile::changed() {
  const std::lock_guard lock(entering);
  std::vector<std::string> out;
  for (const Range& r : ranges) {
    MappedFile* const file = r.file;
    if (!file || file->told_) continue;
    const FileVersion now = version_of(file->file_.number()), then = file->as_.version;
    file->told_ = now.size >= then.size && now != then;
    if (file->told_ && std::ranges::find(out, file->as_.name) == out.end())
      out.push_back(file->as_.name);  // components of a checkpoint map it each
  }
  return out;
}

const MappedFile* MappedFile::at(const void* address) {
  const auto a = reinterpret_cast<uintptr_t>(address);
  for (const Range& r : ranges)
    if (r.begin <= a && a < r.end) return r.file;
  return nullptr;
}

int64_t MappedFile::bytes_left() const {
  struct stat s {};
  return ::fstat(file_.number(), &s) == 0 ? std::min<int64_t>(s.st_size, bytes()) : 0;
}

}  // namespace ebb::io
