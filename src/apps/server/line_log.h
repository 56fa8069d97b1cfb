// What the server says of itself: lines, on standard error.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

namespace ebb::server {

// Whoever reads the lines may be slow or stalled, and requests must not wait for that: a line that
// the descriptor has no room for is left out, and the next one tells how many were.
class LineLog {
 public:
  explicit LineLog(int descriptor) : descriptor_(descriptor) {}

  // Both as one line, cut at 4,095 bytes. Neither waits nor throws nor takes memory.
  void write(std::string_view what, std::string_view more = "");

 private:
  bool put(std::string_view what, std::string_view more) const;

  int descriptor_;
  std::mutex mutex_;
  int64_t left_out_ = 0;
};

// The process's, of standard error.
void log_line(std::string_view what, std::string_view more = "");

}  // namespace ebb::server
