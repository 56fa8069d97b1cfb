// Files: exact reads by position, and writes that replace a file whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/temporary.h"
#include "core/tensor.h"
#include "io/mapped_file.h"

namespace ebb::io {

// A regular file opened for reading, or bytes in memory standing for one. Movable, not copyable.
// Reads go by pread, so that a file cut short meanwhile is an Error and not a signal.
class ReadFile {
 public:
  // Throws Error naming `subject` (e.g. "safetensors") unless `path` is a readable regular file.
  static ReadFile open(const std::string& path, std::string_view subject);
  // `bytes` must outlive the result.
  static ReadFile from_bytes(std::span<const uint8_t> bytes, std::string name);

  const std::string& name() const { return name_; }
  int64_t size() const { return size_; }  // bytes, when it was opened
  // Fills `out` from byte `offset` on. Throws Error if the file ends before or cannot be read.
  // Any number of threads may read at a time.
  void read(int64_t offset, std::span<uint8_t> out) const;
  // Throws Error if the file was written to since it was opened.
  void check_unchanged() const;
  // The file's bytes as read-only memory that the system fills when it is touched and shares with
  // other processes; null where that cannot be had. A file that is cut short while it is mapped
  // is a SIGBUS where what is gone is touched (io/mapped_file.h): what need not be in memory goes
  // by read().
  std::shared_ptr<Buffer> map() const;
  // A part of what map() gave leaves this process's memory until it is touched again.
  static void forget(const void* data, int64_t bytes);

 private:
  ReadFile() = default;
  std::string name_;
  std::string subject_;
  std::span<const uint8_t> bytes_;
  Descriptor file_;  // none: bytes_
  int64_t size_ = 0;
  FileVersion version_;
};

// The whole file. Throws Error naming `subject` if it cannot be read or exceeds `limit` bytes.
std::string read_whole_file(const std::string& path, std::string_view subject, int64_t limit);

// What becomes of a file that is there when another one is moved to its place.
enum class Existing : uint8_t { replaced, kept };

// The whole of a small file that is replaced at once: an AtomicFile with this text.
void write_whole_file(const std::string& path, std::string_view text, std::string_view subject,
                      Existing existing = Existing::replaced);

// The same of a file that is not there yet: false, and nothing is written, where it is, also where
// another process made it meanwhile.
bool write_new_file(const std::string& path, std::span<const uint8_t> bytes,
                    std::string_view subject);

// Makes the folder and those above it. Throws Error naming `subject` and the cause.
void make_folder(const std::string& path, std::string_view subject);

// A folder for files that may never come: made, with those above it, as make_folder() does, and
// removed with it where it is empty then and was not kept. Those that were there stay, whatever a
// path with `..` calls them.
class TrialFolder {
 public:
  TrialFolder(const std::filesystem::path& folder, std::string_view subject);
  ~TrialFolder() { unmake(); }
  TrialFolder(const TrialFolder&) = delete;
  TrialFolder& operator=(const TrialFolder&) = delete;
  void keep() { made_.clear(); }

 private:
  void unmake();
  std::vector<std::filesystem::path> made_;  // the outermost first
};

// Throws Error, naming `subject` and the cause, if no file could be written to `path` as it is now,
// or into a folder that may be made first: to be asked before long work. Leaves nothing, neither
// folders nor, of `path`, what a process that was killed had begun.
void check_can_write(const std::string& path, std::string_view subject);
void check_can_fill(const std::string& folder, std::string_view subject);

// Where symbolic links lead in the end, a link only where they lead in a circle; what is no link as
// it is.
std::string followed(const std::string& path);

// Gives what has the name `from`, a file or a folder, the name `to`, which nothing has: an errno,
// EEXIST where something has it by then.
int take_new_name(const std::string& from, const std::string& to);
// The same, of the names "fox.kept-1.png", "fox.kept-2.png", ... beside `path` the first that is
// free: for what cannot get its place. No clean-up of temporary files knows such names. Gives the
// name, or `from` where it cannot be given another.
std::string keep_beside(const std::string& from, const std::string& path);

// A file being written under a temporary name, `<path>.tmp-<pid>-<n>`. commit() makes it durable
// and renames it over `path`; without commit() the old file stays whole and the new one is removed.
// A symbolic link stays one: `path` is then what it leads to.
// Every failure (no space, no permission, `path` is read-only, or a device) throws Error naming
// `subject` and the cause.
class AtomicFile {
 public:
  AtomicFile(const std::string& path, std::string_view subject);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Of all that will be written: an Error about a disk without room then tells what there was for.
  void expect(int64_t bytes) { expected_ = bytes; }
  void write(std::span<const uint8_t> bytes);
  void write(std::string_view text);
  // Where what is there is to be kept, the new file is kept beside it, and an Error says where.
  void commit(Existing existing = Existing::replaced);
  // commit() that replaces nothing: false where something is at `path` by now.
  bool commit_new();

 private:
  [[noreturn]] void failed(std::string_view step, int cause);
  void close();
  // False: what is at `path` is to be kept, and the new file has its temporary name still.
  bool move_to_place(Existing existing);
  void sync_folder();
  std::string path_;
  std::string temporary_;
  std::string subject_;
  int64_t expected_ = 0;  // bytes; 0: nobody said
  Descriptor file_;       // none: it has its name, or is gone
};

// A file that grows at its end. Each text is one write, at the end that the file has by then: lines
// of several processes stay whole. Makes the file if it is not there. Throws Error naming `subject`
// and the cause.
class AppendFile {
 public:
  AppendFile(std::string path, std::string_view subject);

  void write(std::string_view text);

 private:
  std::string path_;
  std::string subject_;
  Descriptor file_;
};

}  // namespace ebb::io
