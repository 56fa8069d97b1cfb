// The log of the server: lines on standard error.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>

namespace ebb::server {

// Lines to a descriptor, by a thread of its own: nobody who tells something waits for whoever reads
// it, as of a pipe whose reader stalls. So many bytes wait at most. Lines that find no room are
// left out, and a line tells how many once there is room again.
class LineWriter {
 public:
  LineWriter(int descriptor, size_t most_bytes);
  ~LineWriter();  // what waits is written, where it is taken within a second
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Any thread.
  void add(std::string line);  // without its end
  void leave_out() noexcept;   // a line that there is no memory for
  // Until all is written. False: it is not in this time.
  bool wait(std::chrono::milliseconds time);

 private:
  struct State;
  static void work(State& s);
  std::shared_ptr<State> state_;  // the thread's, too: where nobody reads, it outlives this
};

// On standard error, until the process ends.
LineWriter& server_log();
// "serve: <what>: <the exception's sentence>"
void log_fault(const char* what, const std::exception& e) noexcept;

}  // namespace ebb::server
