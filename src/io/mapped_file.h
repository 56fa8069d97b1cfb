// Files mapped into memory, and which of them an address lies in: a file that is cut short while it
// is mapped sends SIGBUS to the thread that touches what is gone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/tensor.h"

namespace ebb::io {

// The sentence on such a file, around the number of bytes that are left.
struct CutShort {
  std::string before, after;
};
CutShort cut_short(std::string_view subject, int64_t size, const std::string& name);

// Known by its addresses while it exists. At most 1024 at a time.
class MappedFile final : public Buffer {
 public:
  // Null where the system does not map the file, or as many are mapped already. `sentence`: what
  // is said of it.
  static std::shared_ptr<MappedFile> map(int fd, int64_t bytes, CutShort sentence);
  // The one that has this address; null: none has it. For signal handlers: takes neither a lock nor
  // memory. Valid while something uses its bytes.
  static const MappedFile* at(const void* address);

  ~MappedFile() override;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  void* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }
  bool on_host() const override { return true; }

  const CutShort& sentence() const { return sentence_; }
  // Of the file as it is now, at most bytes(). For signal handlers as well.
  int64_t bytes_left() const;

 private:
  MappedFile(int fd, int64_t bytes, CutShort sentence);
  bool enter();
  int fd_;  // its own
  void* data_ = nullptr;
  int64_t bytes_;
  CutShort sentence_;
};

}  // namespace ebb::io
