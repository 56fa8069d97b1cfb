#include "train/stop.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <system_error>

namespace ebb::train {
namespace {

// A signal handler can reach nothing but globals; these are the only ones.
// Threads may take signals at the same moment.
std::atomic<int> came = 0;
std::atomic<int64_t> came_at = 0;  // ms; 0: none came
static_assert(std::atomic<int64_t>::is_always_lock_free);
std::array<char, 160> line = {};  // written before handlers are there
size_t line_length = 0;
bool tells_json = false;

// A pipe may be full, as where its reader stalls: nothing waits for it.
void write_line() {
  pollfd room{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (::poll(&room, 1, 0) > 0) static_cast<void>(!::write(STDERR_FILENO, line.data(), line_length));
}

int64_t milliseconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

// One request may come as two signals at once (a shell's and that of `timeout`, say); one that
// comes later means it: the default takes over.
void on_signal(int signal) {
  constexpr int64_t patience = 1000;  // ms
  const int before = errno;
  const int64_t now = milliseconds();
  int64_t first = 0;
  if (came_at.compare_exchange_strong(first, now)) {
    came = signal;
    write_line();
  } else if (now - first >= patience) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  errno = before;
}

void end_now(int signal) {
  constexpr int stopped = 128;
  write_line();
  if (tells_json) {
    constexpr std::string_view begin = R"({"interrupted":true,"signal":)", end = "}\n";
    std::array<char, begin.size() + end.size() + 4> text;
    char* at = std::ranges::copy(begin, text.data()).out;
    at = std::to_chars(at, text.data() + text.size(), signal).ptr;
    at = std::ranges::copy(end, at).out;
    static_cast<void>(!::write(STDOUT_FILENO, text.data(), static_cast<size_t>(at - text.data())));
  }
  ::_exit(stopped + signal);
}

void keep_line(std::string_view said) {
  // A terminal shows ^C where the cursor is.
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  line_length = 0;
  if (said.empty()) return;
  if (terminal) line[line_length++] = '\n';
  const size_t n = std::min(said.size(), line.size() - line_length - 1);
  std::copy_n(said.begin(), n, line.begin() + static_cast<std::ptrdiff_t>(line_length));
  line_length += n;
  line[line_length++] = '\n';
}

HandlersBefore handle_by(void (*handler)(int)) {
  HandlersBefore all;
  for (size_t i = 0; i < all.size(); ++i) {
    sigaction(stop_signals[i], nullptr, &all[i]);
    if (all[i].sa_handler == SIG_IGN) continue;
    struct sigaction a = {};
    a.sa_handler = handler;
    a.sa_flags = SA_RESTART;  // system calls in other threads go on
    sigemptyset(&a.sa_mask);
    sigaction(stop_signals[i], &a, nullptr);
  }
  return all;
}

void restore(const HandlersBefore& all) {
  for (size_t i = 0; i < all.size(); ++i) sigaction(stop_signals[i], &all[i], nullptr);
}

}  // namespace

StopSignals::StopSignals(std::string_view said) {
  came = 0;
  came_at = 0;
  keep_line(said);
  before_ = handle_by(on_signal);
}

StopSignals::~StopSignals() { restore(before_); }

int StopSignals::requested() const { return came; }

EndOnSignal::EndOnSignal(std::string_view said, bool json) {
  keep_line(said);
  tells_json = json;
  before_ = handle_by(end_now);
}

EndOnSignal::~EndOnSignal() { restore(before_); }

SignalThread::SignalThread() {
  sigset_t stops;
  sigemptyset(&stops);
  for (const int signal : stop_signals) sigaddset(&stops, signal);
  pthread_sigmask(SIG_BLOCK, &stops, &before_);
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      pthread_sigmask(SIG_SETMASK, &before_, nullptr);
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable_any().wait(lock, stop, [] { return false; });
    });
  } catch (const std::system_error&) {  // no more threads: signals come as usual
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
}

SignalThread::~SignalThread() {
  thread_ = {};  // ends it
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace ebb::train
