#include "apps/server/log.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"

namespace ebb::server {
namespace {

constexpr std::chrono::seconds last_lines{1};

// Waits for whoever reads. Where nobody can any more, nothing is written.
void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {  // another process has made it so
      pollfd room{.fd = descriptor, .events = POLLOUT, .revents = 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

}  // namespace

struct LineWriter::State {
  State(int to, size_t bytes) : descriptor(to), most(bytes) {}
  const int descriptor;
  const size_t most;
  std::mutex mutex;
  std::condition_variable wake, done;
  std::deque<std::string> lines;
  size_t bytes = 0, left_out = 0;
  bool writes = false, ends = false;
  bool is_idle() const { return lines.empty() && !writes; }
  std::string told() {  // once
    const size_t n = std::exchange(left_out, 0);
    return n == 0 ? "" : str("serve: nobody read the log: ", n, " lines are left out here\n");
  }
};

// The thread cannot be ended while it waits for a reader, so nobody waits for it.
LineWriter::LineWriter(int descriptor, size_t most_bytes)
    : state_(std::make_shared<State>(descriptor, most_bytes)) {
  std::thread([s = state_] { work(*s); }).detach();
}

LineWriter::~LineWriter() {
  wait(last_lines);
  const std::lock_guard lock(state_->mutex);
  state_->ends = true;
  state_->wake.notify_one();
}

void LineWriter::add(std::string line) {
  line += '\n';
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (s.bytes + line.size() > s.most) {
    ++s.left_out;
    return;
  }
  if (s.left_out > 0) line.insert(0, s.told());
  s.bytes += line.size();
  s.lines.push_back(std::move(line));
  s.wake.notify_one();
}

void LineWriter::leave_out() noexcept {
  const std::lock_guard lock(state_->mutex);
  ++state_->left_out;
}

bool LineWriter::wait(std::chrono::milliseconds time) {
  std::unique_lock lock(state_->mutex);
  return state_->done.wait_for(lock, time, [&] { return state_->is_idle(); });
}

void LineWriter::work(State& s) {
  std::unique_lock lock(s.mutex);
  while (true) {
    s.wake.wait(lock, [&] { return s.ends || !s.lines.empty(); });
    if (s.ends) return;
    std::string line = std::move(s.lines.front());
    s.lines.pop_front();
    s.bytes -= line.size();
    if (s.lines.empty()) line += s.told();
    s.writes = true;
    lock.unlock();
    write_all(s.descriptor, line);
    lock.lock();
    s.writes = false;
    if (s.is_idle()) s.done.notify_all();
  }
}

LineWriter& server_log() {
  static LineWriter log(STDERR_FILENO, size_t{256} << 10);
  return log;
}

void log_fault(const char* what, const std::exception& e) noexcept {
  try {
    server_log().add(str("serve: ", what, ": ", e.what()));
  } catch (const std::bad_alloc&) {
    server_log().leave_out();
  }
}

}  // namespace ebb::server
