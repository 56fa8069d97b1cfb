#include "io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/names.h"

namespace ebb::io {
namespace {

// Some systems refuse transfers of 2 GiB and more in one call.
constexpr size_t transfer_limit = size_t{1} << 30;

}  // namespace

// ---- reading ----

ReadFile ReadFile::open(const std::string& path, std::string_view subject) {
  ReadFile f;
  f.name_ = path;
  f.subject_ = subject;
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  f.file_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  require(bool(f.file_), subject, ": cannot open (", std::strerror(errno), ")  ", path);
  struct stat s {};
  require(::fstat(f.file_.number(), &s) == 0, subject, ": cannot read (", std::strerror(errno),
          ")  ", path);
  require(S_ISREG(s.st_mode), subject, ": must be a regular file  ", path);
  f.version_ = version_of(f.file_.number());
  f.size_ = f.version_.size;
  return f;
}

ReadFile ReadFile::from_bytes(std::span<const uint8_t> bytes, std::string name) {
  ReadFile f;
  f.name_ = std::move(name);
  f.subject_ = "file";
  f.bytes_ = bytes;
  f.size_ = static_cast<int64_t>(bytes.size());
  return f;
}

void ReadFile::read(int64_t offset, std::span<uint8_t> out) const {
  const int64_t bytes = static_cast<int64_t>(out.size());
  require(offset >= 0 && bytes <= size_ && offset <= size_ - bytes, subject_,
          ": read past the end (", bytes, " bytes at ", offset, " of ", size_, ")  ", name_);
  if (!file_) {
    if (bytes > 0) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return;
  }
  while (!out.empty()) {
    const ssize_t got =
        ::pread(file_.number(), out.data(), std::min(out.size(), transfer_limit), offset);
    if (got < 0 && errno == EINTR) continue;
    require(got >= 0, subject_, ": cannot read (", std::strerror(errno), ")  ", name_);
    if (got == 0) {
      const CutShort sentence = cut_short(subject_, size_, name_);
      fail(sentence.before, offset, sentence.after);
    }
    out = out.subspan(static_cast<size_t>(got));
    offset += got;
  }
}

std::shared_ptr<Buffer> ReadFile::map() const {
  if (!file_ || size_ == 0) return nullptr;
  return MappedFile::map(file_.number(),
                         {.version = version_,
                          .name = name_,
                          .cut_short = cut_short(subject_, size_, printable(name_))});
}

void ReadFile::check_unchanged() const {
  require(!file_ || version_of(file_.number()) == version_, subject_,
          ": file was written to while it was read (", size_, " bytes when it was opened)  ",
          name_);
}

void ReadFile::forget(const void* data, int64_t bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes);
  // only frees memory: where it fails nothing is wrong
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

std::string read_whole_file(const std::string& path, std::string_view subject, int64_t limit) {
  const ReadFile f = ReadFile::open(path, subject);
  require(f.size() <= limit, subject, ": file must be at most ", limit, " bytes (", f.size(), ")  ",
          path);
  std::string text(static_cast<size_t>(f.size()), '\0');
  f.read(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
  return text;
}

// ---- writing ----

void write_whole_file(const std::string& path, std::string_view text, std::string_view subject,
                      Existing existing) {
  AtomicFile file(path, subject);
  file.write(text);
  file.commit(existing);
}

bool write_new_file(const std::string& path, std::span<const uint8_t> bytes,
                    std::string_view subject) {
  struct stat s {};
  if (::lstat(path.c_str(), &s) == 0) return false;
  AtomicFile file(path, subject);
  file.write(bytes);
  return file.commit_new();
}

void make_folder(const std::string& path, std::string_view subject) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  require(!error && std::filesystem::is_directory(path, error), subject,
          ": cannot make the folder (", error ? error.message() : "it is a file", ")  ", path);
}

TrialFolder::TrialFolder(const std::filesystem::path& folder, std::string_view subject) {
  std::filesystem::path p;
  std::error_code ignored;  // make_folder says what is wrong
  for (const std::filesystem::path& part : folder) {
    p /= part;
    if (std::filesystem::create_directory(p, ignored)) made_.push_back(p);
  }
  try {
    if (!folder.empty()) make_folder(folder.string(), subject);
  } catch (...) {
    unmake();
    throw;
  }
}

void TrialFolder::unmake() {
  for (; !made_.empty(); made_.pop_back()) ::rmdir(made_.back().c_str());
}

void check_can_write(const std::string& path, std::string_view subject) {
  std::error_code ignored;
  require(!std::filesystem::is_directory(path, ignored), subject, ": is a folder, not a file  ",
          path);
  const std::string folder = std::filesystem::path(path).parent_path().string();
  require(folder.empty() || std::filesystem::exists(folder, ignored), subject,
          ": there is no folder ", folder, " (mkdir -p makes it)  ", path);
  const AtomicFile file(path, subject);
  remove_abandoned(followed(path));
}

void check_can_fill(const std::string& folder, std::string_view subject) {
  // The trial of another process may have made the folder, and remove it before a file is in it.
  constexpr int most_turns = 50;
  for (int turn = 1;; ++turn) {
    try {
      const TrialFolder trial(folder, subject);
      const AtomicFile file((std::filesystem::path(folder) / "x").string(), subject);
      return;
    } catch (const Error&) {
      if (turn == most_turns) throw;
    }
  }
}

std::string followed(const std::string& path) {
  constexpr int most_links = 40;
  std::filesystem::path at = path;
  std::error_code error;
  for (int i = 0; i < most_links && std::filesystem::is_symlink(at, error); ++i) {
    const std::filesystem::path target = std::filesystem::read_symlink(at, error);
    if (error) break;
    at = at.parent_path() / target;  // an absolute one takes the place of all
  }
  return at.string();
}

namespace {

// Of a file system without links: what is empty takes the name first.
int claim_name(const std::string& from, const std::string& to) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(from, ignored);
  constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  const bool made = folder ? ::mkdir(to.c_str(), 0777) == 0
                           : bool(Descriptor(::open(to.c_str(), flags, 0666)));  // closed at once
  if (!made) return errno;
  if (std::rename(from.c_str(), to.c_str()) == 0) return 0;
  const int cause = errno;
  folder ? ::rmdir(to.c_str()) : ::unlink(to.c_str());
  return cause;
}

}  // namespace

int take_new_name(const std::string& from, const std::string& to) {
  if (::link(from.c_str(), to.c_str()) != 0) return errno == EEXIST ? EEXIST : claim_name(from, to);
  ::unlink(from.c_str());
  return 0;
}

std::string keep_beside(const std::string& from, const std::string& path) {
  const std::filesystem::path place(path);
  std::error_code ignored;
  const std::string ending =
      std::filesystem::is_directory(from, ignored) ? "" : place.extension().string();
  const std::string name = place.filename().string();
  const std::string begin = name.substr(0, name.size() - ending.size());
  for (int64_t i = 1;; ++i) {
    const std::string kept = (place.parent_path() / str(begin, ".kept-", i, ending)).string();
    const int cause = take_new_name(from, kept);
    if (cause == 0) return kept;
    if (cause != EEXIST) return from;
  }
}

AtomicFile::AtomicFile(const std::string& path, std::string_view subject)
    : path_(followed(path)), temporary_(temporary_name(path_)), subject_(subject) {
  struct stat s {};
  // A device or pipe would be replaced by a file. A folder fails in commit().
  require(::stat(path_.c_str(), &s) != 0 || S_ISREG(s.st_mode) || S_ISDIR(s.st_mode), subject_,
          ": must be a regular file or a new one  ", path);
  std::error_code ignored;
  require(!std::filesystem::is_symlink(path_, ignored), subject_,
          ": cannot create (symbolic links in a circle)  ", path);
  // A rename would replace what nobody may write.
  constexpr mode_t writable = S_IWUSR | S_IWGRP | S_IWOTH;
  const bool there = ::stat(path_.c_str(), &s) == 0 && S_ISREG(s.st_mode);
  const bool allowed = !there || ::access(path_.c_str(), W_OK) == 0;
  require(allowed || s.st_uid == ::geteuid(), subject_, ": is of another user and may not be ",
          "written (", std::strerror(errno), ")  ", path);
  require(allowed && (!there || (s.st_mode & writable) != 0), subject_,
          ": is read-only; chmod u+w lets it be replaced  ", path);
  do {
    file_ = Descriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    require(bool(file_), subject_, ": cannot create (", std::strerror(errno), ")  ", path);
  } while (!hold_temporary(file_.number()));
}

AtomicFile::~AtomicFile() {
  if (file_) ::unlink(temporary_.c_str());
}

void AtomicFile::failed(std::string_view step, int cause) {
  const bool no_room = cause == ENOSPC || cause == EDQUOT || cause == EFBIG;
  const int64_t put = file_ ? ::lseek(file_.number(), 0, SEEK_CUR) : -1;
  const std::string room = no_room && put >= 0 && put < expected_
                               ? str("; room for ", put, " of its ", expected_, " bytes")
                               : "";
  fail(subject_, ": cannot ", step, " (", std::strerror(cause), room, ")  ", path_);
}

void AtomicFile::write(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t put =
        ::write(file_.number(), bytes.data(), std::min(bytes.size(), transfer_limit));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) failed("write", put < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

void AtomicFile::close() {
  if (::fsync(file_.number()) != 0) failed("write", errno);
  // close() may be the first to report a full disk (NFS)
  const int cause = file_.close();
  if (cause == 0) return;
  ::unlink(temporary_.c_str());
  failed("write", cause);
}

void AtomicFile::sync_folder() {
  std::string folder = std::filesystem::path(path_).parent_path().string();
  if (folder.empty()) folder = ".";
  const Descriptor d(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!d) return;  // a folder we may write to but not list: its entry is not ours to sync
  // EINVAL: a file system without directory syncs.
  if (::fsync(d.number()) != 0 && errno != EINVAL) failed("write the folder", errno);
}

bool AtomicFile::move_to_place(Existing existing) {
  close();
  const bool keeps = existing == Existing::kept;
  const bool renamed = !keeps && std::rename(temporary_.c_str(), path_.c_str()) == 0;
  const int cause = keeps ? take_new_name(temporary_, path_) : renamed ? 0 : errno;
  if (keeps && cause == EEXIST) return false;
  if (cause != 0) {
    ::unlink(temporary_.c_str());
    failed("write", cause);
  }
  sync_folder();
  return true;
}

void AtomicFile::commit(Existing existing) {
  const Descriptor held(::fcntl(file_.number(), F_DUPFD_CLOEXEC, 0));  // until it has its name
  if (!move_to_place(existing))
    fail(subject_,
         ": a file has appeared meanwhile, which is not replaced; what was made is kept in ",
         keep_beside(temporary_, path_), "  ", path_);
}

bool AtomicFile::commit_new() {
  const Descriptor held(::fcntl(file_.number(), F_DUPFD_CLOEXEC, 0));  // until it has its name
  const bool moved = move_to_place(Existing::kept);
  if (!moved) ::unlink(temporary_.c_str());
  return moved;
}

AppendFile::AppendFile(std::string path, std::string_view subject)
    : path_(std::move(path)), subject_(subject) {
  file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  require(bool(file_), subject_, ": cannot open (", std::strerror(errno), ")  ", path_);
}

void AppendFile::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(file_.number(), text.data(), std::min(text.size(), transfer_limit));
    if (put < 0 && errno == EINTR) continue;
    require(put > 0, subject_, ": cannot write (", std::strerror(put < 0 ? errno : ENOSPC), ")  ",
            path_);
    text.remove_prefix(static_cast<size_t>(put));
  }
}

}  // namespace ebb::io
