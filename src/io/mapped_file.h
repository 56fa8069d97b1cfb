// Files mapped into memory, and which of them an address lies in: a file that is cut short while it
// is mapped sends SIGBUS to the thread that touches what is gone. What is written into one is seen
// by all that use its bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/temporary.h"
#include "core/tensor.h"

namespace ebb::io {

// The sentence on a file that is cut short, around the number of bytes that are left.
struct CutShort {
  std::string before, after;
};
CutShort cut_short(std::string_view subject, int64_t size, const std::string& name);

// What tells whether an open file was written to since: its length, and when its bytes changed.
struct FileVersion {
  int64_t size = 0, seconds = 0, nanoseconds = 0;
  bool operator==(const FileVersion&) const = default;
};
FileVersion version_of(int descriptor);

// What is mapped: the file as it was when it was opened, and what is said of it.
struct MappedAs {
  FileVersion version;
  std::string name;
  CutShort cut_short;
};

// Known by its addresses while it exists. At most 1024 at a time.
class MappedFile final : public Buffer {
 public:
  // Null where the system does not map the file, or as many are mapped already.
  static std::shared_ptr<MappedFile> map(int fd, MappedAs as);
  // Is called once, before the first file is mapped, by the thread that maps it; at once where one
  // is mapped already.
  static void before_first(void (*prepare)());
  // The names of those that exist and were written to since they were opened, each told once. Not
  // of those that are shorter now: touching what is gone is an error of its own.
  static std::vector<std::string> changed();
  // The one that has this address; null: none has it. For signal handlers: takes neither a lock nor
  // memory. Valid while something uses its bytes.
  static const MappedFile* at(const void* address);

  ~MappedFile() override;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  void* data() const override { return data_; }
  int64_t bytes() const override { return as_.version.size; }
  bool on_host() const override { return true; }

  const CutShort& sentence() const { return as_.cut_short; }
  // Of the file as it is now, at most bytes(). For signal handlers as well.
  int64_t bytes_left() const;

 private:
  MappedFile(int fd, MappedAs as);
  bool enter();
  void leave();
  Descriptor file_;  // its own
  void* data_ = nullptr;
  MappedAs as_;
  bool told_ = false;  // by changed()
};

}  // namespace ebb::io
