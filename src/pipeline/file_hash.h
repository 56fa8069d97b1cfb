// SHA-256 of model files (FIPS 180-4), by which other programs tell them apart.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <stop_token>
#include <string>
#include <thread>

namespace ebb {

// 64 hexadecimal digits, of `most` bytes from `from` on, or up to the end; "" where `stop` asked
// for the end. Throws Error for what cannot be read.
std::string sha256_of(const std::string& path, const std::stop_token& stop = {}, int64_t from = 0,
                      int64_t most = std::numeric_limits<int64_t>::max());

// What of a file is hashed: all of it, or what follows the header of a safetensors file, as the web
// UI tells LoRAs apart, whose headers are edited.
enum class HashOf : uint8_t { file, tensors };

// The hash of a file, computed beside other work, and kept in ebb's cache by path, size and time of
// the last change.
class FileHash {
 public:
  explicit FileHash(std::string path, HashOf part = HashOf::file);
  // Waits for it; "" for folders and files that cannot be read.
  const std::string& hex();
  // hex() would not wait.
  bool done() const { return done_; }

 private:
  std::string hex_;
  std::atomic<bool> done_ = false;
  std::jthread work_;  // destroyed before what it writes; asks it to stop
};

}  // namespace ebb
