// SHA-256 of model files (FIPS 180-4), by which other programs tell them apart.
#pragma once

#include <stop_token>
#include <string>
#include <thread>

namespace ebb {

// 64 hexadecimal digits; "" where `stop` asked for the end. Throws Error for what cannot be read.
std::string sha256_of(const std::string& path, const std::stop_token& stop = {});

// The hash of a file, computed beside other work, and kept in ebb's cache by path, size and time of
// the last change.
class FileHash {
 public:
  explicit FileHash(std::string path);
  // Waits for it; "" for folders and files that cannot be read.
  const std::string& hex();

 private:
  std::string hex_;
  std::jthread work_;  // destroyed before what it writes; asks it to stop
};

}  // namespace ebb
